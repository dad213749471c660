"""The host's side of experience: where each page goes, and what that completes.

Of the paged replay and of the on-policy queue. Numpy only: an index never touches a device.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from seedrl.agents.window import WindowSpec
from seedrl.types import Tree


def check_geometry(window: WindowSpec, page_steps: int, capacity_pages: int) -> None:
    """Asserts that pages, strides and the ring fit each other; `ReplayConfig.check` refuses."""
    stride = window.stride
    assert min(page_steps, window.unroll, stride) >= 1 and min(window) >= 0, (window, page_steps)
    assert stride % page_steps == 0 or page_steps % stride == 0, (window, page_steps)
    assert capacity_pages >= window.pages_per_sequence(page_steps), (window, capacity_pages)


def tree_bytes(tree: Tree) -> int:
    """Bytes of all arrays, or shape structs, of a tree; without jax."""
    if isinstance(tree, Mapping):
        return sum(tree_bytes(item) for item in tree.values())
    if isinstance(tree, tuple | list):
        return sum(tree_bytes(item) for item in tree)
    return int(np.prod(tree.shape, dtype=np.int64)) * np.dtype(tree.dtype).itemsize


def by_slot(slots: Sequence[int], num_inserted: int, num_shards: int) -> list[int]:
    """The shard of each page where all pages of a slot go to the same one."""
    del num_inserted
    return [slot % num_shards for slot in slots]


def require_geometry(mine: Mapping[str, Any], saved: Mapping[str, Any], *names: str) -> None:
    """Raises ValueError if an index was saved with other sizes than it has now."""
    for name in names:
        if saved[name] != mine[name]:
            raise ValueError(
                f"replay {name} is {mine[name]} but the checkpoint was written with {saved[name]}; "
                "restore the config or start a new run"
            )


@dataclass
class _Stream:
    # A stream's pages so far: their number, and the serials of the last few, youngest last.
    num_pages: int = 0
    serials: deque[int] = field(default_factory=deque)


class PageIndex:
    """The ring order of one shard's pages: an `Index`. Owned by the learning thread, which inserts.

    Every page has a serial number; page q lies at q mod P and lives until page q + P arrives.

    M sequences start in a page: `starts_in_page`.
    """

    def __init__(self, *, capacity_pages: int, window: WindowSpec, page_steps: int) -> None:
        check_geometry(window, page_steps, capacity_pages)
        self._capacity = capacity_pages
        self.starts_in_page = window.starts_in_page(page_steps)
        self._pages_per_sequence = window.pages_per_sequence(page_steps)
        self._pages_per_stride = max(1, window.stride // page_steps)
        self._streams: dict[int, _Stream] = {}
        self._is_sampleable = np.zeros(capacity_pages, bool)
        self._num_complete = 0  # pages of `_is_sampleable`
        self.num_inserted = 0  # evicted ones included

    @property
    def num_sequences(self) -> int:
        return self._num_complete * self.starts_in_page

    @property
    def fill(self) -> float:
        return min(self.num_inserted, self._capacity) / self._capacity

    def has_room(self, num_pages: int) -> bool:
        del num_pages
        return True  # the oldest make room

    def draw(self) -> tuple[()]:
        return ()  # the device draws, by priority

    def plan(self, streams: Sequence[int] | np.ndarray) -> np.ndarray:
        """Decides where pages go, in order, and takes that as done: a plan `[3, I] int32`.

        Of each of I pages, or P, the capacity, where there is none: where it goes; the page of the
        same stream that precedes it, whose link is set to it; and the first page of the sequence
        that it completes, or of all M. One array, for each of several would be handed to the device
        by itself.

        Args:
          streams: the stream of each page; negative for a page that is not of this shard. A stream
            may occur several times, its pages in order.

        Raises ValueError for more pages than the replay holds.
        """
        num_pages = sum(int(stream >= 0) for stream in streams)
        if num_pages > self._capacity:
            raise ValueError(
                f"expected at most {self._capacity} pages in one insertion, which is the replay's "
                f"capacity, got {num_pages}; raise replay.capacity_steps"
            )
        # The plan of a call is carried out as a whole: links first, then completions. So what a
        # later page of the same call evicts is struck here: it is neither linked nor completed.
        first_alive = self.num_inserted + num_pages - self._capacity
        plan = np.full((3, len(streams)), self._capacity, np.int32)
        pages, predecessors, completions = plan
        for position, stream in enumerate(streams):
            if stream < 0:
                continue
            serial, previous, completed = self._append(int(stream))
            pages[position] = serial % self._capacity
            if previous is not None and previous >= first_alive:
                predecessors[position] = previous % self._capacity
            if completed is not None and completed >= first_alive:
                completions[position] = completed % self._capacity
                self._is_sampleable[completed % self._capacity] = True
                self._num_complete += 1
        return plan

    def _append(self, stream: int) -> tuple[int, int | None, int | None]:
        # Takes a page: the serials of it, of its predecessor and of the start that it completes.
        serial = self.num_inserted
        self.num_inserted += 1
        # A stream's pages have ascending serials, so whoever evicts a page has evicted every older
        # page of its stream before: a link never leads to a page that was overwritten, and evicting
        # a page invalidates exactly the sequences that start in it.
        evicted = serial % self._capacity
        self._num_complete -= int(self._is_sampleable[evicted])
        self._is_sampleable[evicted] = False

        if (entry := self._streams.get(stream)) is None:
            entry = self._streams[stream] = _Stream()
        previous = entry.serials[-1] if entry.serials else None
        entry.serials.append(serial)
        entry.num_pages += 1
        first_page = entry.num_pages - self._pages_per_sequence
        if len(entry.serials) > self._pages_per_sequence:
            entry.serials.popleft()
        # Where M sequences start in a page, all can be sampled once the last of them is complete:
        # at most a page later than each by itself, and nothing is counted per sequence.
        starts_on_stride = first_page >= 0 and first_page % self._pages_per_stride == 0
        return serial, previous, entry.serials[0] if starts_on_stride else None

    def end_stream(self, stream: int) -> None:
        """The stream was cut: its sequences stay, later pages of that id start a new stream."""
        self._streams.pop(int(stream), None)

    def state(self) -> dict[str, Any]:
        return {
            "capacity_pages": self._capacity,
            "pages_per_sequence": self._pages_per_sequence,
            "pages_per_stride": self._pages_per_stride,
            "num_inserted": self.num_inserted,
            "sampleable": np.flatnonzero(self._is_sampleable).tolist(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        sizes = ("capacity_pages", "pages_per_sequence", "pages_per_stride")
        require_geometry(self.state(), state, *sizes)
        self.num_inserted = int(state["num_inserted"])
        self._is_sampleable[:] = False
        self._is_sampleable[np.asarray(state["sampleable"], np.int64)] = True
        self._num_complete = len(state["sampleable"])
        # Every stream was cut: what follows comes from new environments, under new names.
        self._streams = {}


def by_turns(slots: Sequence[int], num_inserted: int, num_shards: int) -> list[int]:
    """The shard of each page where every page goes to the next one, in order of arrival."""
    return [(num_inserted + number) % num_shards for number in range(len(slots))]


def stale_pages(
    versions: Sequence[int], updates: int, num_waiting: int, *, batch: int, max_lag: int
) -> list[int]:
    """Positions of the pages that would be trained with a lag above `max_lag`; see `Experience`.

    `batch`: sequences of an update, over all devices.
    """
    stale: list[int] = []
    for position, version in enumerate(versions):
        # What arrives is trained in that order, so the update that it is for is known: none
        # overtakes another, and those that are left out here count for no other.
        due = updates + (num_waiting + position - len(stale)) // batch
        if due - version > max_lag:
            stale.append(position)
    return stale


class QueueIndex:
    """The order of one shard's sequences: an `Index`. Owned by the learning thread.

    Sequence q, counted from 0 as they arrive, lies at q mod C until it is drawn.
    """

    def __init__(self, *, capacity_sequences: int, batch: int) -> None:
        """`batch`: sequences of a draw, at most `capacity_sequences`."""
        assert 1 <= batch <= capacity_sequences, (batch, capacity_sequences)
        self._capacity = capacity_sequences
        self._batch = batch
        self._waiting: deque[int] = deque()
        self.num_inserted = 0
        self._num_drawn = 0
        self._num_restored = 0

    @property
    def num_sequences(self) -> int:
        return len(self._waiting)

    @property
    def fill(self) -> float:
        return len(self._waiting) / self._capacity

    def has_room(self, num_pages: int) -> bool:
        # None that waits is ever overwritten.
        return len(self._waiting) + num_pages <= self._capacity

    def plan(self, streams: Sequence[int] | np.ndarray) -> np.ndarray:
        """Where pages go, `[I] int32`; C for one that is not of this shard. Takes it as done.

        `streams`: the stream of each page, in order; negative for one that is not of this shard.
        """
        is_ours = np.asarray(streams, np.int64).reshape(-1) >= 0
        number = int(np.count_nonzero(is_ours))
        assert self.has_room(number), (len(self._waiting), number, self._capacity)
        # None is drawn before an older one: those that wait are neighbours, never more than C.
        indices = (self.num_inserted + np.cumsum(is_ours) - 1) % self._capacity
        self._waiting.extend(indices[is_ours].tolist())
        self.num_inserted += number
        return np.where(is_ours, indices, self._capacity).astype(np.int32)

    def end_stream(self, stream: int) -> None:
        """Nothing: what is complete is trained, whatever becomes of its stream."""

    def draw(self) -> np.ndarray:
        """Indices of the B sequences that arrived first, `[B] int32`. They wait no more.

        If there are fewer, the rest repeats them by turns, each index i as -1 - i.
        """
        number = min(self._batch, len(self._waiting))
        self._num_drawn += number
        drawn = np.array([self._waiting.popleft() for _ in range(number)], np.int32)
        # Of none at all: any.
        repeats = -1 - np.resize(drawn if number else np.zeros(1, np.int32), self._batch - number)
        return np.concatenate([drawn, repeats]).astype(np.int32)

    def accounts(self) -> dict[str, int]:
        """Sequences by what became of them since this object was made, for the ledger."""
        return {
            "requeued": self._num_restored,
            "taken": self._num_drawn,
            "waiting": len(self._waiting),
        }

    def state(self) -> dict[str, Any]:
        return {
            "capacity_sequences": self._capacity,
            "num_inserted": self.num_inserted,
            "waiting": list(self._waiting),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        require_geometry(self.state(), state, "capacity_sequences")
        self.num_inserted = int(state["num_inserted"])
        self._waiting = deque(int(index) for index in state["waiting"])
        self._num_restored = len(self._waiting)
