"""Steps that wait for their actions, and when they become a batch."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from learner.serving.leases import Group, Lease, Role, SlotRange
from seedrl.types import TimeStep

# Training batches aim at half of the live environments: the other half steps meanwhile. Evaluation
# leaves most of the time to training anyway.
_LOOKAHEAD: dict[Role, int] = {"training": 2, "evaluation": 1}


class BatchRule(NamedTuple):
    """How steps become batches; a run has one, chosen once."""

    deadline_seconds: float  # the longest that a step waits for others
    # Of `(num_live, num_slots, lookahead)` of a queue: rows at which a batch is due. Called if one
    # changes; `num_slots` is without those that are waited for in vain.
    target_rows: Callable[[int, int, int], int]
    # Of the slots of each of a batch's steps: which of its rows are theirs.
    rows: Callable[[Sequence[np.ndarray]], list[slice | np.ndarray]]
    # Every batch has all slots but those of disabled environments, so that a stream's row is a
    # batch's number.
    is_complete: bool
    # All slots fill their pages together: while they are not at the same row, because a stream has
    # started, all of them start their pages again.
    is_aligned: bool = False
    # Each slot is a group of its own: no environment waits for the answers of others.
    is_separate: bool = False


def free_running(deadline_seconds: float) -> BatchRule:
    """The steps that wait are acted on in order of arrival, at the latest at the deadline."""
    return BatchRule(
        deadline_seconds=deadline_seconds,
        target_rows=lambda num_live, _, lookahead: max(1, -(-num_live // lookahead)),
        rows=_by_arrival,
        is_complete=False,
    )


def lock_step() -> BatchRule:
    """A batch has the rows of all slots, in their order, and waits for them as long as it takes.

    Only for slots whose environments are disabled it does not wait, because nobody plays them.
    """
    return BatchRule(
        deadline_seconds=math.inf,
        target_rows=lambda num_live, num_slots, _: max(1, num_live, num_slots),
        rows=_by_slot,
        is_complete=True,
    )


def rounds() -> BatchRule:
    """As in lock step, but for training slots only, whose pages are started and filled together.

    So learning gets a page of each slot, and no page is open while it learns. Nor does it wait for
    slots that an env server has left because of a failure, until they are played again.
    """
    return lock_step()._replace(is_complete=False, is_aligned=True)


def _by_arrival(slots: Sequence[np.ndarray]) -> list[slice | np.ndarray]:
    ends = itertools.accumulate(map(len, slots))
    return [slice(end - len(own), end) for own, end in zip(slots, ends, strict=True)]


def _by_slot(slots: Sequence[np.ndarray]) -> list[slice | np.ndarray]:
    order = np.sort(np.concatenate(slots))
    return [np.searchsorted(order, own) for own in slots]


class Pending(NamedTuple):
    """A group's step that waits for its actions."""

    group: Group
    sequence: int
    timestep: TimeStep  # leaves are [E, ...], views of the message that arrived
    arrival: float  # by the hub's clock
    # [L, M] float32: of each row that is LAST the numbers of `environment.metrics`, NaN where there
    # is none; () if none are configured.
    metrics: np.ndarray | tuple[()] = ()


class BatchQueue:
    """The slots of one role and inference device, and their steps that wait, first in, first out.

    The hub's lock guards it. A batch is due when `target_rows` rows wait, or when the oldest has
    waited as long as the rule lets it: one slow env server delays no other (Espeholt et al. 2019
    wait for a full batch, for ever). The clock is the caller's.
    """

    def __init__(self, slots: SlotRange, rule: BatchRule):
        self.role = slots.role
        self.device = slots.device  # the number of the inference device that acts for it
        self.rule = rule
        self.num_live = 0  # environments in it whose stream is open
        self._num_missing = 0  # slots that are waited for in vain
        self.num_rows = 0  # that wait
        self._num_slots = slots.size
        self._queue: list[Pending] = []
        self.add_live(0)

    def add_live(self, num_envs: int) -> None:
        """Takes that N more streams are open, or fewer if N is negative."""
        self.num_live += num_envs
        num_slots = self._num_slots - self._num_missing
        self.target_rows = self.rule.target_rows(self.num_live, num_slots, _LOOKAHEAD[self.role])

    def set_missing(self, num_slots: int) -> None:
        """Takes that nobody plays N slots, because their environments have failed."""
        self._num_missing = num_slots
        self.add_live(0)

    def put(self, pending: Pending) -> None:
        """Queues a step."""
        self._queue.append(pending)
        self.num_rows += len(pending.group.slots)

    def strike(self, lease: Lease) -> int:
        """Removes what `lease` has queued; returns the number of rows removed."""
        struck = [pending for pending in self._queue if pending.group.lease is lease]
        self._queue = [pending for pending in self._queue if pending.group.lease is not lease]
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
        # For the ledger, which observes: `num_rows` must be the same.
        return sum(len(pending.group.slots) for pending in self._queue)

    @property
    def is_news(self) -> bool:
        """True if the step that was put last makes a batch due, or sets when one will be."""
        # For any other step the thread that waits for a batch need not wake up: a thread woken in
        # vain takes the interpreter from the threads that receive.
        return len(self._queue) == 1 or self.num_rows >= self.target_rows

    @property
    def oldest_arrival(self) -> float:
        """When the oldest waiting step arrived; there must be one."""
        return self._queue[0].arrival

    def take(self) -> list[Pending]:
        """Takes all steps that wait, oldest first; at most one per slot."""
        taken, self._queue, self.num_rows = self._queue, [], 0
        return taken
