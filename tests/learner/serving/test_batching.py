import math

import numpy as np
import pytest

from learner.serving.batching import BatchQueue, BatchRule, Pending, free_running, lock_step
from learner.serving.leases import Group, Lease, SlotRange
from seedrl.types import TimeStep


def _pending(num_envs: int, *, arrival: float = 0.0, lease: Lease | None = None) -> Pending:
    slots = np.zeros(num_envs, np.int32)
    group = Group(
        lease or Lease(1, 1, "peer", 0), 0, slots, slots.astype(np.int64), "training", 0, b""
    )
    return Pending(group, 0, TimeStep((), (), (), ()), arrival)


def _lane(max_rows: int = 10, *, target_rows: int = 4) -> BatchQueue:
    rule = BatchRule(0.5, lambda *_: target_rows, list, is_complete=False)
    return BatchQueue(SlotRange("training", 0, max_rows), rule)


def test_a_batch_is_due_as_soon_as_it_is_large_enough() -> None:
    lane = _lane()
    lane.put(_pending(2, arrival=10.0))
    assert lane.seconds_until_due(10.0) == 0.5
    lane.put(_pending(2, arrival=10.1))
    assert lane.seconds_until_due(10.1) == 0.0


@pytest.mark.parametrize(("now", "expected"), [(10.0, 0.5), (10.25, 0.25), (10.5, 0.0), (99, 0.0)])
def test_a_batch_is_due_when_its_oldest_step_reaches_the_deadline(
    now: float, expected: float
) -> None:
    lane = _lane()
    lane.put(_pending(1, arrival=10.0))
    lane.put(_pending(1, arrival=10.2))
    assert lane.seconds_until_due(now) == expected


def test_steps_are_taken_whole_and_in_order_until_the_next_does_not_fit() -> None:
    lane = _lane(max_rows=6)
    steps = [_pending(size) for size in (3, 2, 2, 1)]
    for step in steps:
        lane.put(step)
    assert [id(step) for step in lane.take()] == [id(step) for step in steps[:2]]
    assert lane.num_rows == 3
    assert [id(step) for step in lane.take()] == [id(step) for step in steps[2:]]
    assert lane.num_rows == 0
    assert lane.take() == []


SLOTS = [np.array([2, 5]), np.array([0]), np.array([1, 3, 4])]


@pytest.mark.parametrize(
    ("num_live", "lookahead", "expected"),
    [(8, 2, 4), (7, 2, 4), (7, 1, 7), (1, 2, 1), (0, 2, 1), (0, 1, 1)],
)
def test_free_running_acts_on_a_part_of_who_is_there(
    num_live: int, lookahead: int, expected: int
) -> None:
    assert free_running(0.5).target_rows(num_live, 100, lookahead) == expected


def test_rows_lie_in_order_of_arrival_or_in_lock_step_in_order_of_slots() -> None:
    assert free_running(0.5).rows(SLOTS) == [slice(0, 2), slice(2, 3), slice(3, 6)]
    rule = lock_step()
    assert rule.rows(SLOTS) == SLOTS
    assert (rule.target_rows(3, 6, 2), rule.deadline_seconds) == (6, math.inf)
