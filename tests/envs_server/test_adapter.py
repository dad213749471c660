"""Literal sequences of rows, worked by hand, for environments that end in every way."""

from typing import Any

import gymnasium
import numpy as np
import pytest

from envs_server.adapter import Adapter, VectorEnvironment, VectorStep
from envs_server.build import Recipe, build
from seedrl.types import StepType, TimeStep
from seedrl.wire.payload import ValueFaultError

FIRST, MID, LAST = StepType.FIRST, StepType.MID, StepType.LAST


class Short(gymnasium.Env[np.ndarray, np.int64]):
    """Episodes of two steps that end as told; observations count all resets and steps."""

    observation_space = gymnasium.spaces.Box(0, 255, (), np.uint8)
    action_space = gymnasium.spaces.Discrete(4)

    def __init__(self, terminates: bool, truncates: bool) -> None:
        self._end = (terminates, truncates)
        self._count, self._left = -1, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._left = 2
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        self._left -= 1
        terminated, truncated = self._end if self._left == 0 else (False, False)
        return self._observe(), 10.0 + action, terminated, truncated, {}

    def _observe(self) -> np.ndarray:
        self._count += 1
        return np.array(self._count, np.uint8)


def _rows(terminates: bool, truncates: bool, actions: list[int]) -> list[list[float]]:
    """(step type, reward, discount, observation) of the first row and after each action."""
    recipe = Recipe("short", {"terminates": terminates, "truncates": truncates}, (), Short)
    adapter = Adapter(build(recipe, "sync", 1))
    steps = [_copy(adapter.reset([0]))]
    steps += [_copy(adapter.step(np.array([action]))) for action in actions]
    return steps


def _copy(step: TimeStep) -> list[float]:
    return [leaf.item() for leaf in step]


@pytest.mark.parametrize(
    ("terminates", "truncates", "discount"),
    [(True, False, 0.0), (False, True, 1.0), (True, True, 0.0)],
)
def test_an_episode_of_two_steps_is_these_rows(
    terminates: bool, truncates: bool, discount: float
) -> None:
    assert _rows(terminates, truncates, [1, 2, 3, 1, 0, 3]) == [
        [FIRST, 0.0, 1.0, 0],
        [MID, 11.0, 1.0, 1],
        [LAST, 12.0, discount, 2],
        [FIRST, 0.0, 1.0, 3],  # action 3 is ignored
        [MID, 11.0, 1.0, 4],
        [LAST, 10.0, discount, 5],
        [FIRST, 0.0, 1.0, 6],
    ]


def _scripted(*steps: tuple[list[float], list[bool], list[bool]]) -> VectorEnvironment:
    """Two environments that give these rewards, terminations and truncations, one after another."""
    iterator = iter(steps)

    def step(actions: np.ndarray) -> VectorStep:
        reward, terminated, truncated = map(np.array, next(iterator))
        return VectorStep(np.zeros(2), reward, terminated, truncated)

    space = gymnasium.spaces.Discrete(2)
    return VectorEnvironment(space, space, lambda seeds: np.zeros(2), step, lambda: None)


def test_rows_of_one_vector_do_not_touch_each_other() -> None:
    adapter = Adapter(
        _scripted(
            ([1.0, 2.0], [True, False], [False, False]),
            # A vector environment may leave an old reward on the row that starts an episode.
            ([9.0, 3.0], [False, False], [False, True]),
            ([4.0, 9.0], [False, False], [False, False]),
        )
    )
    adapter.reset([0, 1])
    steps = [adapter.step(np.zeros(2, np.int64)) for _ in range(3)]
    assert [step.step_type.tolist() for step in steps] == [[LAST, MID], [FIRST, LAST], [MID, FIRST]]
    assert [step.reward.tolist() for step in steps] == [[1, 2], [0, 3], [4, 0]]
    assert [step.discount.tolist() for step in steps] == [[0, 1], [1, 1], [1, 1]]
    assert steps[0].step_type.dtype == np.uint8
    assert steps[0].reward.dtype == steps[0].discount.dtype == np.float32


def test_an_episode_without_a_step_is_a_fault() -> None:
    ended = ([0.0, 0.0], [False, True], [False, False])
    adapter = Adapter(_scripted(ended, ended))
    adapter.reset([0, 1])
    adapter.step(np.zeros(2, np.int64))
    with pytest.raises(ValueFaultError):
        adapter.step(np.zeros(2, np.int64))


class Measured(Short):
    """Measures something in its last step, the first episode of environment 1 apart."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._seed = seed if seed is not None else 0
        return super().reset(seed=seed)

    def step(self, action: Any) -> Any:
        *result, _ = super().step(action)
        if self._left or self._seed == 1:
            return *result, {"left": self._left, "name": "x"}
        return *result, {
            "score": 0.5,
            "episode": {"r": np.float32(3), "t.x": 1},
            "won": True,
            "name": "x",
            "huge": 1e300,
        }


def test_numbers_of_info_go_with_last_rows_by_name() -> None:
    recipe = Recipe("short", {"terminates": True, "truncates": False}, (), Measured)
    names = ["score", "episode.r", "episode.t.x", "won", "missing", "name", "huge", "left.r"]
    adapter = Adapter(build(recipe, "sync", 2), names)
    adapter.reset([0, 1])
    assert adapter.metrics.shape == (0, 8)
    adapter.step(np.zeros(2, np.int64))
    assert adapter.metrics.shape == (0, 8)
    step = adapter.step(np.zeros(2, np.int64))
    assert step.step_type.tolist() == [LAST, LAST]
    assert adapter.metrics.dtype == np.float32
    nan = np.nan
    np.testing.assert_array_equal(adapter.metrics, [[0.5, 3, 1, 1, nan, nan, nan, nan], [nan] * 8])
    adapter.step(np.zeros(2, np.int64))
    assert adapter.metrics.shape == (0, 8)
