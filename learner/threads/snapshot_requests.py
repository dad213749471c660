"""Snapshots: what a checkpoint keeps, asked for by one thread and taken by the one that owns it."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from learner.acting.act_step import ActingState
from learner.learning.learn_step import LearnerState
from learner.threads.channel import Channel, Mailbox
from seedrl.replay.replay import ReplayState
from seedrl.types import Tree


class ActingSnapshot(NamedTuple):
    """What acting needs to go on with every stream where it is; numpy leaves.

    Attributes:
      state: carries, pages under writing, key.
      params: the parameters that act: with `learning.publish_every_updates` not always the newest.
      version: `[] int64`, the number of updates behind them.
      episode_returns: `[S] float64`, of the episodes under way.
      episode_lengths: `[S] int64`.
    """

    state: ActingState
    params: Tree
    version: np.ndarray
    episode_returns: np.ndarray
    episode_lengths: np.ndarray


class Snapshot(NamedTuple):
    """What a checkpoint needs, on the host.

    Attributes:
      state: numpy leaves.
      indices: the replay's page indices, one per shard, as plain values.
      replay: numpy leaves, or `()` if the replay is not saved.
      acting: `()` if the streams are cut where the run goes on.
      meta: counts of that very moment, by their names in a checkpoint.
    """

    state: LearnerState
    indices: list[dict[str, object]]
    replay: ReplayState | tuple[()]
    acting: ActingSnapshot | tuple[()] = ()
    meta: Mapping[str, Any] = {}


class _Request(NamedTuple):
    with_replay: bool
    answer: Channel[Snapshot]


class Snapshots:
    """Where snapshots are asked for, by one thread, and taken, by another that owns the state.

    Attributes:
      take: `with_replay -> Snapshot`, for the owner's thread, or after that has ended.
    """

    def __init__(self, take: Callable[[bool], Snapshot]):
        self.take = take
        self._request: Mailbox[_Request | None] = Mailbox(None)

    def request(self, *, with_replay: bool) -> Channel[Snapshot]:
        """Asks for a copy of everything; the answer's channel.

        Each request has a channel of its own, so that an answer that nobody waits for any more is
        not taken for the next one's.
        """
        request = _Request(with_replay, Channel(1))
        self._request.put(request)
        return request.answer

    def answer(self) -> None:
        """Takes the snapshot that was asked for, if one was. Called by the owner, when at rest."""
        request = self._request.get()
        if request is not None:
            self._request.put(None)
            request.answer.put(self.take(request.with_replay), timeout=0.0)
