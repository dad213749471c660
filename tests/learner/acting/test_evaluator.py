from typing import Any

import numpy as np
import pytest

from learner.acting.evaluator import Episode, Evaluator, Round, Score
from learner.report.status import EvaluationStatus
from learner.runtime.channel import VersionedParams
from seedrl.config import EvaluationConfig
from seedrl.types import StepType

FIRST, MID, LAST = StepType
OLD, NEW = VersionedParams("old", 3, 40), VersionedParams("new", 9, 90)
SLOTS = np.array([4, 6], np.int32)


def _begin(target: Round | Evaluator, slots: list[int], *, lease: int = 0) -> None:
    _observe(target, slots, FIRST, {}, lease=lease)


def _end(
    target: Round | Evaluator, slot: int, episode_return: float, now: float = 0.0
) -> tuple[Score, bool] | None:
    return _observe(target, [slot], LAST, {slot: episode_return}, now)


def _observe(
    target: Round | Evaluator,
    slots: list[int],
    step_type: StepType,
    ended: dict[int, float],
    now: float = 0.0,
    *,
    lease: int = 0,
) -> tuple[Score, bool] | None:
    streams = np.array(slots) + 10 * lease
    step_types = np.full(len(slots), step_type, np.uint8)
    episodes = {slot: Episode(value) for slot, value in ended.items()}
    if isinstance(target, Round):
        target.observe(np.array(slots), streams, step_types, episodes)
        return None
    return target.observe(now, np.array(slots), streams, step_types, episodes)


def _score(frozen: VersionedParams, returns: tuple[float, ...]) -> Score:
    return Score(frozen, tuple(map(Episode, returns)))


def _play(evaluator: Evaluator, returns: list[float], now: float = 0.0) -> tuple[Score, bool]:
    """Plays `returns` on SLOTS in turn; all but the last must leave the round open."""
    for position, episode_return in enumerate(returns):
        slot = int(SLOTS[position % len(SLOTS)])
        _begin(evaluator, [slot])
        result = _end(evaluator, slot, episode_return, now)
        assert (result is None) == (position < len(returns) - 1)
    assert result is not None
    return result


def _evaluator(**fields: Any) -> Evaluator:
    config = EvaluationConfig(interval_seconds=10.0, episodes=2, **fields)
    evaluator = Evaluator(config, now=100.0)
    evaluator.poll(100.0, OLD, SLOTS)
    return evaluator


def test_every_slot_plays_the_same_number_of_episodes_however_short_they_are() -> None:
    evaluation = Round(OLD, SLOTS, episodes=4)
    for _ in range(5):
        _begin(evaluation, [4])
        _end(evaluation, 4, 1.0)
    assert evaluation.score is None
    for _ in range(2):
        _begin(evaluation, [6])
        _end(evaluation, 6, 10.0)
    assert evaluation.score == _score(OLD, (1.0, 1.0, 10.0, 10.0))
    assert _score(OLD, (1.0, 1.0, 10.0, 10.0)).mean == 5.5


def test_a_group_is_reset_at_its_first_step_of_a_round_if_it_keeps_an_episode_waiting() -> None:
    evaluation = Round(OLD, SLOTS, episodes=1)  # for slot 4
    kinds = np.array([MID, MID], np.uint8)
    assert evaluation.wants_reset(SLOTS, kinds)
    assert not evaluation.wants_reset(SLOTS, np.array([FIRST, MID], np.uint8))
    assert not evaluation.wants_reset(SLOTS, np.array([LAST, MID], np.uint8))
    _observe(evaluation, [4, 6], MID, {})
    assert not evaluation.wants_reset(SLOTS, kinds)  # what has begun meanwhile may count


def test_rounds_follow_each_other_at_the_interval_with_the_newest_parameters() -> None:
    evaluator = _evaluator()
    assert evaluator.is_running
    assert evaluator.frozen is OLD
    evaluator.poll(105.0, NEW, SLOTS)
    assert evaluator.frozen is OLD
    assert _play(evaluator, [1.0, 2.0], now=107.0) == (_score(OLD, (1.0, 2.0)), False)
    assert not evaluator.is_running
    evaluator.poll(116.9, NEW, SLOTS)
    assert not evaluator.is_running
    evaluator.poll(117.0, NEW, SLOTS)
    assert evaluator.is_running
    assert evaluator.frozen is NEW


@pytest.mark.parametrize(
    ("mean_return", "due"), [(9.0, 300), (10.0, 250)], ids=["below", "nominated"]
)
def test_a_resumed_run_plays_its_next_round_where_it_would_have_without_a_break(
    mean_return: float, due: int
) -> None:
    evaluator = Evaluator(EvaluationConfig(target_return=10.0), 0.0, interval_steps=100)
    counts = {"episodes": 2, "env_steps": 210, "ended_env_steps": 240, "updates": 21}
    evaluator.resume(EvaluationStatus(mean_return=mean_return, **counts))
    for steps in range(250, due, 10):
        evaluator.poll(0.0, VersionedParams("later", steps // 10, steps), SLOTS)
        assert not evaluator.is_running
    evaluator.poll(0.0, VersionedParams("due", due // 10, due), SLOTS)
    assert evaluator.is_running


def test_parameters_that_no_update_has_changed_are_not_played_again() -> None:
    evaluator = _evaluator(target_return=10.0)
    assert _play(evaluator, [10.0, 10.0], now=107.0) == (_score(OLD, (10.0, 10.0)), False)
    assert evaluator.is_confirming  # which plays the same ones, for another reason
    returns = [0.0] * EvaluationConfig().confirm_episodes
    _play(evaluator, returns, now=110.0)
    evaluator.poll(500.0, OLD, SLOTS)
    assert not evaluator.is_running
    evaluator.poll(501.0, NEW, SLOTS)
    assert evaluator.frozen is NEW


@pytest.mark.parametrize(("slots", "player"), [([4], 4), ([4, 6, 7], 6), ([4, 7], 4)])
def test_a_round_goes_on_with_its_parameters_when_slots_come_or_go(
    slots: list[int], player: int
) -> None:
    evaluator = _evaluator()
    _begin(evaluator, [4, 6])
    _end(evaluator, 4, 100.0)
    evaluator.poll(101.0, NEW, np.array(slots, np.int32))
    assert evaluator.frozen is OLD
    if player == 4:
        _begin(evaluator, [4])
    assert _end(evaluator, player, 1.0) == (_score(OLD, (100.0, 1.0)), False)


def test_what_a_slot_had_played_that_leaves_is_played_again_by_those_that_stay() -> None:
    evaluation = Round(OLD, SLOTS, episodes=4)
    _begin(evaluation, [4, 6])
    _end(evaluation, 4, 1.0)
    _end(evaluation, 6, 100.0)
    evaluation.change(np.array([4]))
    assert evaluation.returns == (1.0,)
    evaluation.change(SLOTS)
    for slot, episode_return in ((6, 100.0), (4, 2.0), (6, 100.0), (4, 3.0), (4, 4.0)):
        assert evaluation.score is None
        assert len(evaluation.missing_slots) == 1
        _begin(evaluation, [slot])
        _end(evaluation, slot, episode_return)
    assert evaluation.score == _score(OLD, (1.0, 2.0, 3.0, 4.0))


def test_a_slot_that_is_leased_again_between_two_looks_has_left() -> None:
    evaluation = Round(OLD, SLOTS, episodes=4)
    _begin(evaluation, [4, 6])
    _end(evaluation, 4, 100.0)
    _end(evaluation, 6, 1.0)
    _begin(evaluation, [4, 6])
    _begin(evaluation, [4], lease=1)
    assert evaluation.returns == (1.0,)
    _observe(evaluation, [4], LAST, {4: 100.0}, lease=1)
    _end(evaluation, 6, 2.0)
    for episode_return in (3.0, 4.0):
        assert evaluation.score is None
        _begin(evaluation, [6])
        _end(evaluation, 6, episode_return)
    assert evaluation.score == _score(OLD, (1.0, 2.0, 3.0, 4.0))


def test_a_nomination_is_confirmed_over_fresh_episodes_of_the_same_parameters() -> None:
    evaluator = _evaluator(target_return=5.0, confirm_episodes=4)
    _play(evaluator, [5.0, 5.0])
    _observe(evaluator, [4, 6], MID, {})
    assert _end(evaluator, 4, 1e6) is None  # began during the nomination
    assert _end(evaluator, 6, 1e6) is None
    _begin(evaluator, [4])
    assert _end(evaluator, 4, 5.0) is None
    for slot, episode_return in ((6, 6.0), (4, 7.0)):
        _begin(evaluator, [slot])
        assert _end(evaluator, slot, episode_return) is None
    _begin(evaluator, [6])
    result = _end(evaluator, 6, 8.0)
    assert result is not None
    score, was_confirming = result
    assert (score, was_confirming) == (_score(OLD, (5.0, 6.0, 7.0, 8.0)), True)
    assert not evaluator.is_confirming
    assert evaluator.confirmed is score
    evaluator.poll(1e9, NEW, SLOTS)
    assert not evaluator.is_running


def test_a_failed_confirmation_starts_over_at_the_interval() -> None:
    evaluator = _evaluator(target_return=5.0, confirm_episodes=4)
    _play(evaluator, [5.0, 5.0])
    assert _play(evaluator, [4.9] * 4, now=200.0) == (_score(OLD, (4.9,) * 4), True)
    assert evaluator.confirmed is None
    assert not evaluator.is_running
    evaluator.poll(209.9, NEW, SLOTS)
    assert not evaluator.is_running
    evaluator.poll(210.0, NEW, SLOTS)
    assert evaluator.frozen is NEW
    assert _play(evaluator, [5.0, 5.0]) == (_score(NEW, (5.0, 5.0)), False)  # nominates, no more
    assert evaluator.confirmed is None


def test_an_episode_that_was_cut_short_counts_once() -> None:
    evaluation = Round(OLD, SLOTS[:1], episodes=2)
    _begin(evaluation, [4])
    for value in (3.0, 7.0):  # cut short, and then ended by itself
        _end(evaluation, 4, value)
    assert evaluation.returns == (3.0,) and evaluation.missing_slots.tolist() == [4]
    _begin(evaluation, [4])
    _end(evaluation, 4, 5.0)
    assert evaluation.score == _score(OLD, (3.0, 5.0)) and not evaluation.missing_slots.size


def test_pass_at_k_is_a_mean_over_questions_with_k_answers() -> None:
    returns = {0: (1.0, 0.0, 0.0), 1: (0.9, 0.0), 2: (2.0, 1.0, 1.0, 0.5), -3: (1.0,) * 8}
    episodes = [Episode(each, question=q) for q, own in returns.items() for each in own]
    found = Score(OLD, tuple(episodes)).pass_at_k()
    expected = {"pass_at_1": (1 / 3 + 0 + 3 / 4) / 3, "pass_at_2": (2 / 3 + 0 + 1) / 3}
    assert found == pytest.approx({**expected, "pass_at_4": 1.0})
    assert Score(OLD, (Episode(1.0, question=0), Episode(1.0, question=1))).pass_at_k() == {}
    assert Score(OLD, (Episode(1.0), Episode(0.0))).pass_at_k() == {}
