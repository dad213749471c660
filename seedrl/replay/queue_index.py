"""The host's side of the on-policy queue: which sequences of one shard wait, and where they lie."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def by_turns(slots: Sequence[int], num_inserted: int, num_shards: int) -> list[int]:
    """The shard of each page where every page goes to the next one, in order of arrival."""
    return [(num_inserted + number) % num_shards for number in range(len(slots))]


def stale_pages(
    versions: Sequence[int], updates: int, num_waiting: int, *, batch: int, max_lag: int
) -> list[int]:
    """Positions of the pages that would be trained with a lag above `max_lag`; see `Experience`.

    What arrives is trained in that order, so the update that it is for is known: none overtakes
    another, and those that are left out here count for no other.

    Args:
      batch: sequences of an update, over all devices.
    """
    stale: list[int] = []
    for position, version in enumerate(versions):
        due = updates + (num_waiting + position - len(stale)) // batch
        if due - version > max_lag:
            stale.append(position)
    return stale


class QueueIndex:
    """The order of one shard's sequences. Owned by the thread that learns; not thread-safe.

    Sequence q, counted from 0 as they arrive, lies at q mod C until it is drawn. As none is ever
    drawn before an older one, those that wait are neighbours, and never more than C.
    """

    def __init__(self, *, capacity_sequences: int, batch: int) -> None:
        """`batch`: sequences of a draw, at most `capacity_sequences`."""
        assert 1 <= batch <= capacity_sequences, (batch, capacity_sequences)
        self._capacity = capacity_sequences
        self._batch = batch
        self._waiting: deque[int] = deque()
        self._num_inserted = 0
        self._num_drawn = 0
        self._num_restored = 0

    @property
    def num_sequences(self) -> int:
        """Sequences that wait, once the last plan has been carried out."""
        return len(self._waiting)

    @property
    def num_inserted(self) -> int:
        """Sequences that have arrived so far."""
        return self._num_inserted

    @property
    def fill(self) -> float:
        """Which share of the capacity waits."""
        return len(self._waiting) / self._capacity

    def has_room(self, num_pages: int) -> bool:
        """Whether that many more sequences can be taken in without overwriting one that waits."""
        return len(self._waiting) + num_pages <= self._capacity

    def plan(self, streams: Sequence[int] | np.ndarray) -> np.ndarray:
        """Where pages go, `[I] int32`; C for one that is not of this shard. Takes it as done.

        `streams`: the stream of each page, in order; negative for one that is not of this shard.
        """
        is_ours = np.asarray(streams, np.int64).reshape(-1) >= 0
        number = int(np.count_nonzero(is_ours))
        assert self.has_room(number), (len(self._waiting), number, self._capacity)
        places = (self._num_inserted + np.cumsum(is_ours) - 1) % self._capacity
        self._waiting.extend(places[is_ours].tolist())
        self._num_inserted += number
        return np.where(is_ours, places, self._capacity).astype(np.int32)

    def end_stream(self, stream: int) -> None:
        """Nothing: what is complete is trained, whatever becomes of its stream."""

    def draw(self) -> np.ndarray:
        """The places of the B sequences that arrived first, `[B] int32`. They wait no more."""
        self._num_drawn += self._batch
        return np.array([self._waiting.popleft() for _ in range(self._batch)], np.int32)

    def accounts(self) -> dict[str, int]:
        """Sequences by what became of them since this object was made, for the ledger."""
        return {
            "requeued": self._num_restored,
            "taken": self._num_drawn,
            "waiting": len(self._waiting),
        }

    def state(self) -> dict[str, Any]:
        """Everything needed to resume, as plain JSON-able values."""
        return {
            "capacity_sequences": self._capacity,
            "num_inserted": self._num_inserted,
            "waiting": list(self._waiting),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Inverse of `state`. Raises ValueError if that was written with another geometry."""
        if state["capacity_sequences"] != self._capacity:
            raise ValueError(
                f"the queue holds {self._capacity} sequences on each device but the checkpoint was "
                f"written with {state['capacity_sequences']}; restore the config or start a new "
                "workdir"
            )
        self._num_inserted = int(state["num_inserted"])
        self._waiting = deque(int(place) for place in state["waiting"])
        self._num_restored = len(self._waiting)
