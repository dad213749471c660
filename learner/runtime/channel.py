"""Everything that crosses between the acting and the learning thread."""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import jax

from learner.runtime.rate_limiter import RateLimiter
from seedrl.types import Page, Tree

# Pages on their way: enough that acting never waits for an update of ordinary length, and little
# beside what devices and hosts have.
MOST_BYTES = 256 * 2**20


class FilledPages(NamedTuple):
    """Pages on their way to replay.

    Attributes:
      pages: leaves `[I, ...]` on the device that acted; rows beyond `len(streams)` are padding.
      streams: the stream of each page, in order.
      slots: the slot of each page.
      ended: streams that were cut; nothing more arrives from them.
      versions: of each page, the version that acted on its first row: none of it is older.
    """

    pages: Page | tuple[()]
    streams: Sequence[int]
    slots: Sequence[int]
    ended: Sequence[int]
    versions: Sequence[int]


class VersionedParams(NamedTuple):
    """Parameters on an inference device with the number of updates behind them."""

    params: Tree
    version: int


class PageQueue:
    """Pages from the acting threads to the learning thread, in order; bounded by their bytes.

    Acting waits in `put` while those that wait are too large together: that bounds what is in
    flight. One item is taken in whatever its size, or it could never be sent.
    """

    def __init__(self, most_bytes: int = MOST_BYTES):
        self._most_bytes = most_bytes
        self._items: deque[FilledPages] = deque()
        self._num_bytes = 0
        self._changed = threading.Condition()  # guards all of this

    def put(self, item: FilledPages, timeout: float) -> bool:
        """Sends `item` once there is room; whether there was in time."""
        size = _bytes_of(item)
        with self._changed:
            if not self._changed.wait_for(lambda: self._has_room(size), timeout):
                return False
            self._items.append(item)
            self._num_bytes += size
            self._changed.notify_all()
            return True

    def _has_room(self, size: int) -> bool:
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
    """Of its arrays, padding included."""
    return sum(int(leaf.nbytes) for leaf in jax.tree.leaves(item.pages))


@dataclass(eq=False)
class ActorLearnerChannel:
    """What acting and learning share, and all that they know of each other.

    Learning rebinds `params` and `learned_version`, and whoever ends the run `is_closed`, which
    needs no lock; acting reads them.

    Attributes:
      limiter: holds the replay ratio between the two.
      pages: from acting to learning, in order: full pages, and streams that have ended.
      params: from learning to acting: the newest parameters, on each inference device.
      learned_version: from learning to acting: the number of updates taken, published or not.
      wake_acting: makes acting look again at what the limiter allows.
      clock: seconds, monotonic, for both.
      is_closed: whether nothing more is to be sent.
    """

    limiter: RateLimiter
    pages: PageQueue
    params: Sequence[VersionedParams]
    learned_version: int
    wake_acting: Callable[[], None]
    clock: Callable[[], float] = time.monotonic
    is_closed: bool = False


def open_channel(
    limiter: RateLimiter,
    first: Sequence[VersionedParams],
    *,
    wake_acting: Callable[[], None],
    clock: Callable[[], float] = time.monotonic,
    most_bytes: int = MOST_BYTES,
) -> ActorLearnerChannel:
    """A channel without pages, in which `first` is the newest version on each inference device.

    `most_bytes`: of the pages that acting may send before learning takes them; then it waits.
    """
    return ActorLearnerChannel(
        limiter, PageQueue(most_bytes), first, first[0].version, wake_acting, clock
    )


A = TypeVar("A")
T = TypeVar("T")


class _Request(NamedTuple, Generic[A, T]):
    argument: A
    answer: Future[T]


class Requests(Generic[A, T]):
    """Where something is asked for, by one thread, and taken, by another that owns the state.

    Attributes:
      take: `argument -> answer`, for the owner's thread, or after that has ended.
      request_made: what was asked for; whoever owns the state calls `answer` if it is not None.
    """

    def __init__(self, take: Callable[[A], T]):
        self.take = take
        self.request_made: _Request[A, T] | None = None  # rebinding needs no lock

    def request(self, argument: A) -> Future[T]:
        """Asks for an answer.

        Each request has a future of its own, so that an answer that nobody waits for any more is
        not taken for the next one's.
        """
        request = _Request[A, T](argument, Future())
        self.request_made = request
        return request.answer

    def answer(self) -> None:
        """Takes what was asked for, if something was. Called by the owner, when at rest."""
        # Looked at before it is cleared: a first request that is made in between is not lost.
        if (request := self.request_made) is None:
            return
        self.request_made = None
        request.answer.set_result(self.take(request.argument))
