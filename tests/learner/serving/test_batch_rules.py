"""The two rules, and lanes that follow them."""

import math

import numpy as np
import pytest

from learner.serving.batch_rules import free_running, lock_step
from learner.serving.batcher import Lane
from learner.serving.slot_deal import SlotRange

SLOTS = [np.array([2, 5]), np.array([0]), np.array([1, 3, 4])]


@pytest.mark.parametrize(
    ("num_live", "lookahead", "expected"),
    [(8, 2, 4), (7, 2, 4), (7, 1, 7), (1, 2, 1), (0, 2, 1), (0, 1, 1)],
)
def test_free_running_acts_on_a_part_of_who_is_there(
    num_live: int, lookahead: int, expected: int
) -> None:
    assert free_running(0.5).target_rows(num_live, 100, lookahead) == expected


def test_free_running_rows_lie_in_order_of_arrival() -> None:
    rule = free_running(0.5)
    assert rule.rows(SLOTS) == [slice(0, 2), slice(2, 3), slice(3, 6)]
    assert (rule.deadline_seconds, rule.is_complete) == (0.5, False)


def test_lock_step_waits_for_every_slot_and_has_rows_in_slot_order() -> None:
    rule = lock_step()
    assert rule.target_rows(3, 6, 2) == 6
    for rows, slots in zip(rule.rows(SLOTS), SLOTS, strict=True):
        assert rows is slots
    assert (rule.deadline_seconds, rule.is_complete) == (math.inf, True)


def test_a_lane_without_slots_is_never_due() -> None:
    for rule in (free_running(0.5), lock_step()):
        assert Lane(SlotRange("evaluation", 4, 0), rule).seconds_until_due(1e9) is None
