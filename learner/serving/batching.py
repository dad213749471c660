"""Steps that wait for their actions, and when they become a batch."""

import itertools
import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from learner.serving.leases import Group, Lease, Role, SlotRange
from seedrl.types import TimeStep

# Training batches aim at half of the live environments: the other half steps meanwhile. Evaluation
# leaves most of the time to training anyway.
_LOOKAHEAD: dict[Role, int] = {"training": 2, "evaluation": 1}


class BatchRule(NamedTuple):
    """How steps become batches; a run has one, chosen once.

    Attributes:
      deadline_seconds: how long a step waits for others at most.
      target_rows: of `(num_live, num_slots, lookahead)` of a lane: rows at which a batch is due.
        Asked when `num_live` changes.
      rows: of the slots of each of a batch's steps: which of its rows are theirs.
      is_complete: whether every batch has all slots, so that a stream's row is a batch's number.
      is_aligned: whether all slots fill their pages together: while they are not at the same row,
        because a stream has begun, all of them begin their pages again.
    """

    deadline_seconds: float
    target_rows: Callable[[int, int, int], int]
    rows: Callable[[Sequence[np.ndarray]], list[slice | np.ndarray]]
    is_complete: bool
    is_aligned: bool = False


def free_running(deadline_seconds: float) -> BatchRule:
    """Whoever is there is acted on, in order of arrival; nobody waits longer than the deadline.

    A batch is due at a part of the live environments: with a look-ahead of 2, one half steps while
    the other is acted on.
    """
    return BatchRule(
        deadline_seconds=deadline_seconds,
        target_rows=lambda num_live, _, lookahead: max(1, -(-num_live // lookahead)),
        rows=_by_arrival,
        is_complete=False,
    )


def lock_step() -> BatchRule:
    """A batch has the rows of all slots, in their order, and waits for them as long as it takes."""
    return BatchRule(
        deadline_seconds=math.inf,
        target_rows=lambda _, num_slots, __: max(1, num_slots),
        rows=list,
        is_complete=True,
    )


def rounds() -> BatchRule:
    """As in lock step, but for training slots alone, whose pages are begun and filled together.

    So what is learned from between two pages is a page of each slot, and nothing is open then.
    """
    return lock_step()._replace(is_complete=False, is_aligned=True)


def _by_arrival(slots: Sequence[np.ndarray]) -> list[slice | np.ndarray]:
    ends = itertools.accumulate(map(len, slots))
    return [slice(end - len(own), end) for own, end in zip(slots, ends, strict=True)]


class Pending(NamedTuple):
    """A group's step that waits for its actions.

    Attributes:
      group: whose step it is.
      sequence: its number.
      timestep: leaves are `[E, ...]`.
      arrival: when it arrived, in the hub's clock.
      metrics: `[L, M] float32`, of each row that is LAST the numbers of `environment.metrics`, NaN
        where there is none; () if none are wanted.
    """

    group: Group
    sequence: int
    timestep: TimeStep
    arrival: float
    metrics: np.ndarray | tuple[()] = ()


class BatchQueue:
    """The slots of one role and inference device, and their steps that wait, first in, first out.

    Not thread-safe. A batch is due when
    `target_rows` rows wait, or when the oldest has waited as long as the rule lets it: one slow env
    server delays nobody (Espeholt et al. 2019 wait for a full batch, for ever). The clock is the
    caller's.

    Attributes:
      role: what its experience is for.
      device: the number of the inference device that acts for it.
      rule: when its batches are due, and how their rows lie.
      num_live: environments in it whose stream is open.
      num_rows: that wait.
      target_rows: at which a batch is due.
    """

    def __init__(self, slots: SlotRange, rule: BatchRule):
        self.role = slots.role
        self.device = slots.device
        self.rule = rule
        self.num_live = 0
        self.num_rows = 0
        self._num_slots = slots.size
        self._max_rows = max(slots.size, 1)
        self._queue: deque[Pending] = deque()
        self.add_live(0)

    def add_live(self, num_envs: int) -> None:
        """N more streams are open, or fewer if N is negative."""
        self.num_live += num_envs
        target = self.rule.target_rows(self.num_live, self._num_slots, _LOOKAHEAD[self.role])
        self.target_rows = min(target, self._max_rows)

    def put(self, pending: Pending) -> None:
        """Queues a step."""
        self._queue.append(pending)
        self.num_rows += len(pending.group.slots)

    def strike(self, lease: Lease) -> int:
        """Removes what `lease` has queued; returns the number of rows removed."""
        struck = [pending for pending in self._queue if pending.group.lease is lease]
        self._queue = deque(pending for pending in self._queue if pending.group.lease is not lease)
        rows = sum(len(pending.group.slots) for pending in struck)
        self.num_rows -= rows
        return rows

    def seconds_until_due(self, now: float) -> float | None:
        """0 if a batch is due, else how long until one is; None if nothing waits."""
        if not self._queue:
            return None
        if self.num_rows >= self.target_rows:
            return 0.0
        return max(0.0, self._queue[0].arrival + self.rule.deadline_seconds - now)

    def count_rows(self) -> int:
        """Counts the rows that wait; `num_rows` must be the same."""
        return sum(len(pending.group.slots) for pending in self._queue)

    @property
    def is_news(self) -> bool:
        """Whether the step that was put last makes a batch due, or sets when one will be.

        Who waits for a batch need not look again for any other.
        """
        return len(self._queue) == 1 or self.num_rows >= self.target_rows

    @property
    def oldest_arrival(self) -> float:
        """When the oldest waiting step arrived; there must be one."""
        return self._queue[0].arrival

    def take(self) -> list[Pending]:
        """Takes whole steps, oldest first, up to a row for each slot; at least one."""
        taken: list[Pending] = []
        rows = 0
        while self._queue and rows + len(self._queue[0].group.slots) <= self._max_rows:
            taken.append(self._queue.popleft())
            rows += len(taken[-1].group.slots)
        assert taken or not self._queue, "a group is larger than the largest batch"
        self.num_rows -= rows
        return taken
