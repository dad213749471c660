"""Everything that crosses between the acting threads and the learning thread.

Pages go one way, parameters and versions the other; the rate limiter makes the side that is ahead
wait. Pages on a device are handed over: the sender keeps no reference. Rollouts of tokens are on
the host, and nothing changes them. So no lock guards an array.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import jax

from seedrl.replay.rate_limiter import Limiter
from seedrl.types import Page, Tree

# Pages on their way: enough that acting never waits for an update of ordinary length, and little
# compared with the memory of devices and hosts.
MOST_BYTES = 256 * 2**20


class FilledPages(NamedTuple):
    """Full pages on their way to replay, or streams that were cut; never both in one item."""

    # [I, ...], on the device that acted, of tokens on the host; rows beyond `streams` are padding.
    pages: Page | tuple[()]
    streams: Sequence[int]  # of each page, in order
    slots: Sequence[int]  # of each page
    ended: Sequence[int]  # streams that were cut; no more pages arrive from them
    versions: Sequence[int]  # of each page, that acted on its first row: no row's is older


class VersionedParams(NamedTuple):
    """Parameters on an inference device with the number of updates behind them."""

    params: Tree
    version: int
    # Training environment steps of the run when they were published, in a resumed run at first the
    # checkpoint's. What they score belongs to this step, however much later their round ends.
    env_steps: int = 0


class PageQueue:
    """Pages from the acting threads to the learning thread, in order; bounded by their bytes.

    Acting waits in `put` while those that wait are too large together; learning waits in `get`.
    """

    def __init__(self, most_bytes: float = MOST_BYTES):
        self._most_bytes = most_bytes
        self._items: deque[FilledPages] = deque()
        self._num_bytes = 0
        self._changed = threading.Condition()  # guards all of this

    def put(self, item: FilledPages, timeout: float) -> bool:
        """Sends `item` once there is room; False if there was none in time."""
        size = _bytes_of(item)
        with self._changed:
            if not self._changed.wait_for(lambda: self._has_room(size), timeout):
                return False
            self._items.append(item)
            self._num_bytes += size
            self._changed.notify_all()
            return True

    def _has_room(self, size: int) -> bool:
        # One item is taken in whatever its size, or it could never be sent.
        return not self._num_bytes or self._num_bytes + size <= self._most_bytes

    def get(self, timeout: float = 0.0) -> FilledPages | None:
        """The oldest item; None if there is none in time."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._items, timeout):
                return None
            item = self._items.popleft()
            self._num_bytes -= _bytes_of(item)
            self._changed.notify_all()
            return item

    def __len__(self) -> int:
        return len(self._items)


def _bytes_of(item: FilledPages) -> int:
    return sum(int(leaf.nbytes) for leaf in jax.tree.leaves(item.pages))


class RateLimiter:
    """Which side is ahead and has to wait: a lock around a `Limiter`, the value that decides.

    Learning waits here. Acting asks by `may_act` and waits in `Hub.next_batch`, which learning ends
    by `ActorLearnerChannel.wake_acting`. Acting also calls `acted`, main `close` and, before the
    threads start, `restore`, any thread `now`; learning all else: also `acted`, of restored pages
    and, by `dropped`, of stale ones. `AgreedLimiter` takes its place if a run has several hosts.
    """

    def __init__(self, limiter: Limiter):
        self._limiter = limiter
        self._is_closed = False
        self._changed = threading.Condition()  # guards all of this

    @property
    def now(self) -> Limiter:
        """The current value."""
        with self._changed:
            return self._limiter

    def acted(self, steps: int, pages: int = 0) -> None:
        """Counts training environment steps, and the pages that they filled."""
        with self._changed:
            self._limiter = self._limiter.acted(steps, pages)
            # Learning waits for this. Woken in vain, it would take the interpreter from acting at
            # every batch.
            if self._limiter.may_learn():
                self._changed.notify_all()

    def dropped(self, pages: int) -> None:
        """Takes pages back that acting has filled, and that will never be learned from."""
        # Then acting may fill others in their place.
        self.acted(0, -pages)

    def holds(self, num_sequences: Sequence[int]) -> bool:
        """Takes the number of sequences in each shard; True if learning may start."""
        with self._changed:
            self._limiter = self._limiter.holds(num_sequences)
            return self._limiter.is_ready

    def took(self) -> None:
        """Counts an update that was taken, applied or not: its debt is paid."""
        with self._changed:
            self._limiter = self._limiter.took()

    def applied(self) -> None:
        """Counts an update, taken before, that was applied."""
        with self._changed:
            self._limiter = self._limiter.applied()

    def restore(self, counts: Mapping[str, float]) -> None:
        """Continues from the counts of a checkpoint."""
        with self._changed:
            self._limiter = self._limiter.restored(counts)

    def may_act(self) -> bool:
        """Whether training slots may act; never once closed."""
        with self._changed:
            return not self._is_closed and self._limiter.may_act()

    def wait_to_learn(self, timeout_seconds: float) -> bool:
        """True once an update may be taken; False at the deadline or once closed."""
        # There is one learning thread, which calls `took` before it asks again.
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_closed or self._limiter.may_learn(), timeout_seconds
            )
            return not self._is_closed and self._limiter.may_learn()

    def vote_unable(self) -> None:
        """With several hosts, votes that this one cannot update yet. Here there are no others."""

    def close(self) -> None:
        """Ends learning's wait, and forbids both sides all further work."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()


@dataclass(eq=False)
class ActorLearnerChannel:
    """All that acting and learning share.

    Learning rebinds `params`, `learned_version` and `last`, which acting reads; the main thread
    rebinds `is_complete`, which learning reads, and `is_closed`, which acting reads. Rebinding is
    atomic, so they need no lock.
    """

    limiter: RateLimiter  # holds the replay ratio between the two
    params: Sequence[VersionedParams]  # what each inference device acts with
    wake_acting: Callable[[], None]  # makes acting look again at what the limiter allows
    clock: Callable[[], float] = time.monotonic
    # From acting to learning: full pages, and streams that have ended.
    pages: PageQueue = field(default_factory=PageQueue)
    # Applied updates and the one under way, published or not.
    learned_version: int = field(init=False)
    count_steps: Callable[[], int] = lambda: 0  # training environment steps of the run by now
    on_published: Callable[[], object] = lambda: None  # called when `params` are newer
    # All steps are taken: learning finishes its update and, with the synchronous schedule, those
    # that are owed; then it sets `last`. Never set with the deterministic schedule.
    is_complete: bool = False
    # The parameters that no update follows; apart from `params`, so that one look gives both them
    # and that they are the last.
    last: Sequence[VersionedParams] = ()
    is_closed: bool = False  # no more pages are to be sent; set by the asynchronous schedule only

    def __post_init__(self) -> None:
        self.learned_version = self.params[0].version
