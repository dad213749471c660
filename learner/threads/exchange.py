"""Everything that crosses between the acting and the learning thread."""

import queue
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from learner.threads.rate_limiter import SharedLimiter
from seedrl.types import Page, Tree

# Pages that are on their way: enough that acting never waits for an update of ordinary length.
_CAPACITY = 64


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


class FrozenParams(NamedTuple):
    """Parameters on an inference device with the number of updates behind them."""

    params: Tree
    version: int


@dataclass(eq=False)
class Exchange:
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

    limiter: SharedLimiter
    pages: queue.Queue[FilledPages]
    params: Sequence[FrozenParams]
    learned_version: int
    wake_acting: Callable[[], None]
    clock: Callable[[], float] = time.monotonic
    is_closed: bool = False


def open_exchange(
    limiter: SharedLimiter,
    first: Sequence[FrozenParams],
    *,
    wake_acting: Callable[[], None],
    clock: Callable[[], float] = time.monotonic,
    capacity: int = _CAPACITY,
) -> Exchange:
    """An exchange without pages, in which `first` is the newest version on each inference device.

    `capacity`: how many items acting may send before learning takes them; then it waits.
    """
    return Exchange(limiter, queue.Queue(capacity), first, first[0].version, wake_acting, clock)
