"""Rows of a play: what is compared, counted and drawn."""

import numpy as np
import pytest

from envs_server.conformance.rows import (
    Episode,
    Row,
    action_rows,
    digest,
    episodes,
    first_difference,
    other_actions,
    place,
)
from seedrl.specs import ArraySpec, BoxSpec, DiscreteSpec, EnvSpec
from seedrl.types import StepType

THREE = DiscreteSpec(3)
FIRST, MID, LAST = StepType.FIRST, StepType.MID, StepType.LAST


def _rows(*kinds: StepType, discount: float = 1.0) -> list[Row]:
    return [Row(kind, 2.0, discount if kind == LAST else 1.0, b"") for kind in kinds]


PLAY = _rows(FIRST, MID, LAST, FIRST, LAST, FIRST, MID)


def test_equal_plays_have_no_difference() -> None:
    assert first_difference(PLAY, PLAY) is None
    assert first_difference(PLAY, PLAY[:2]) is None  # only the beginning is known


@pytest.mark.parametrize(
    ("number", "change", "expected"),
    [
        (0, {"observation": b"x"}, "reset: another observation"),
        (2, {"reward": 0.0}, "step 2: another reward"),
        (3, {"observation": b"x"}, "reset after step 2: another observation"),
        (4, {"step_type": MID, "discount": 0.0}, "step 3: another step_type and discount"),
    ],
)
def test_the_first_difference_is_placed(
    number: int, change: dict[str, object], expected: str
) -> None:
    other = [*PLAY[:number], PLAY[number]._replace(**change), *_rows(LAST, LAST, LAST, LAST)]
    assert first_difference(PLAY, other) == expected


def test_resets_are_no_steps() -> None:
    assert [place(PLAY, number) for number in range(len(PLAY))] == [
        *("reset", "step 1", "step 2", "reset after step 2", "step 3"),
        *("reset after step 3", "step 4"),
    ]


def test_only_whole_episodes_count_and_resets_pay_nothing() -> None:
    assert episodes(PLAY) == [Episode(2, 4.0, False), Episode(1, 2.0, False)]
    assert episodes(_rows(FIRST, LAST, discount=0.0)) == [Episode(1, 2.0, True)]


def test_a_digest_is_that_of_the_declared_dtype() -> None:
    spec = EnvSpec({"a": ArraySpec((2,), "float32"), "b": ArraySpec((), "int64")}, DiscreteSpec(2))
    given = digest(spec, [np.array([1, 2], np.float64), 3])
    assert given == digest(spec, [np.array([1, 2], np.float32), np.int64(3)])
    assert given != digest(spec, [np.array([1, 2], np.float32), np.int64(4)])
    assert given != digest(spec, [np.array([2, 1], np.float32), np.int64(3)])


def test_every_environment_tries_every_action_and_the_first_does_not_depend_on_the_others() -> None:
    actions = action_rows(THREE, 7, 4, seed=1)
    assert actions.shape == (7, 4) and actions.dtype == np.int32
    for column in actions.T:
        assert set(column[:3]) == {0, 1, 2}
    np.testing.assert_array_equal(action_rows(THREE, 7, 1, seed=1)[:, 0], actions[:, 0])
    assert (action_rows(THREE, 7, 4, seed=2) != actions).any()


def test_a_walk_by_random_actions_gets_as_far_as_independent_draws_do() -> None:
    # Of 2,000 walks of 64 steps to either side the mean square of where they end is 64, give or
    # take 2 (standard error); of shuffled pairs it would be 0.
    steps = 2 * action_rows(DiscreteSpec(2), 64, 2000, seed=1) - 1
    assert 54 < np.mean(np.square(steps.sum(axis=0))) < 74


def test_both_ends_of_a_box_are_tried_first_and_the_first_environment_is_not_disturbed() -> None:
    box = BoxSpec((2,), (0.0, 0.0), (1.0, 3.0))
    actions = action_rows(box, 50, 4, seed=1)
    assert actions.shape == (50, 4, 2) and actions.dtype == np.float32
    assert (actions[0] == -1).all() and (actions[1] == 1).all() and (np.abs(actions) <= 1).all()
    assert len(np.unique(actions)) > 380
    np.testing.assert_array_equal(action_rows(box, 50, 1, seed=1)[:, 0], actions[:, 0])


def test_other_actions_are_legal_and_differ() -> None:
    actions = np.array([[0, 2], [1, 1]], np.int32)
    assert other_actions(THREE, actions).tolist() == [[1, 0], [2, 2]]
    box = BoxSpec((), (0.0,), (1.0,))
    numbers = np.linspace(-1, 1, 5, dtype=np.float32)
    others = other_actions(box, numbers)
    assert others.dtype == np.float32 and (np.abs(others) <= 1).all() and (others != numbers).all()
