"""When a batch is due, and how its rows lie: free running, in rounds, or in lock step."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np


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
