"""Returns of episodes, per slot."""

import numpy as np

from learner.acting.loop import EpisodeTracker
from seedrl.types import StepType

FIRST, MID, LAST = StepType


def _observe(
    tracker: EpisodeTracker, rows: list[tuple[int, StepType, float]]
) -> list[tuple[float, ...]]:
    slots, step_types, rewards = zip(*rows, strict=True)
    return [
        (slot, float(tracker.returns[slot]), int(tracker.lengths[slot]))
        for slot in tracker.observe(
            np.array(slots, np.int32),
            np.array(step_types, np.uint8),
            np.array(rewards, np.float32),
        )
    ]


def test_every_slot_has_its_own_sum_and_rows_come_in_any_order() -> None:
    tracker = EpisodeTracker(3)
    _observe(tracker, [(2, FIRST, 0.0), (0, FIRST, 0.0)])
    _observe(tracker, [(0, MID, 1.0), (2, MID, 10.0)])
    _observe(tracker, [(2, MID, 10.0)])
    ended = _observe(tracker, [(2, LAST, 10.0), (1, FIRST, 0.0), (0, LAST, 1.0)])
    assert ended == [(2, 30.0, 3), (0, 2.0, 2)]


def test_the_next_episode_begins_at_zero() -> None:
    tracker = EpisodeTracker(1)
    for step_type, reward in [(FIRST, 0.0), (LAST, 5.0), (FIRST, 0.0)]:
        _observe(tracker, [(0, step_type, reward)])
    assert _observe(tracker, [(0, LAST, 1.0)]) == [(0, 1.0, 1)]


def test_an_episode_that_was_cut_leaves_nothing_behind() -> None:
    tracker = EpisodeTracker(1)
    _observe(tracker, [(0, FIRST, 0.0)])
    _observe(tracker, [(0, MID, 100.0)])
    assert _observe(tracker, [(0, FIRST, 0.0)]) == []
    assert _observe(tracker, [(0, LAST, 1.0)]) == [(0, 1.0, 1)]


def test_small_rewards_are_not_lost_in_large_returns() -> None:
    tracker = EpisodeTracker(1)
    _observe(tracker, [(0, FIRST, 0.0)])
    _observe(tracker, [(0, MID, 2.0**25)])  # float32 has no odd integers up there
    assert _observe(tracker, [(0, LAST, 1.0)]) == [(0, 2.0**25 + 1, 2)]
