"""Environments stepped one after another."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from envs_server import spaces as spaces_module
from envs_server.backends import sync
from envs_server.envs import counting, masked_cartpole
from envs_server.errors import BuildError
from envs_server.recipe import Recipe


def test_every_environment_gets_its_own_seed() -> None:
    environment = sync.build(Recipe("counting", {}, (), counting.make), 3)
    observation = environment.reset([5, 9 << 16 | 1, 2**31 - 1])
    assert observation.tolist() == [[5, 0, 0, 0], [1, 9, 0, 0], [0xFFFF, 0x7FFF, 0, 0]]


def test_a_registered_environment_reproduces_from_its_seeds() -> None:
    first, again, other = (
        np.array(sync.build(Recipe("CartPole-v1", {}), 2).reset(seeds))
        for seeds in ([1, 2], [1, 2], [2, 1])
    )
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(first, other[::-1])
    assert (first[0] != first[1]).any()


def test_arguments_reach_the_environment_and_wrappers_go_around_it() -> None:
    recipe = Recipe(
        "CartPole-v1", {"sutton_barto_reward": True}, (masked_cartpole.hide_velocities,)
    )
    environment = sync.build(recipe, 2)
    assert environment.observation_space.shape == (2,)
    environment.reset([1, 2])
    step = environment.step(np.zeros(2, np.int64))
    assert step.observation.shape == (2, 2)
    assert step.reward.tolist() == [0, 0]  # 1 without the argument


class Wide(gymnasium.Env[Any, Any]):
    """Returns wider numbers than its space declares; the third one is `last`."""

    action_space = spaces.Discrete(2)

    def __init__(self, last: Any, dtype: str, nested: bool = False) -> None:
        box = spaces.Box(-1e38 if dtype == "float32" else -(2**31), 2**30, (2,), dtype)
        self.observation_space = spaces.Dict({"a": spaces.Tuple((box,))}) if nested else box
        self._numbers = iter([0, 1, last])
        self._nested = nested

    def _observe(self) -> Any:
        number = next(self._numbers)
        wide = np.array([0, number], np.float64 if isinstance(number, float) else np.int64)
        return {"a": (wide,)} if self._nested else wide

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        return self._observe(), 0.0, False, False, {}


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(
    ("last", "dtype", "reason"),
    [
        (1e300, "float32", r"fits into float32.* got 1e\+300 of float64 at \[1\]"),
        (2**40 + 1, "int32", r"fits into int32.* got 1099511627777 of int64 at \[1\]"),
    ],
)
def test_wider_numbers_are_cast_and_refused_where_they_do_not_fit(
    last: Any, dtype: str, reason: str, nested: bool
) -> None:
    recipe = Recipe("wide", {"last": last, "dtype": dtype, "nested": nested}, (), Wide)
    environment = sync.build(recipe, 2)
    environment.reset([1, 2])
    observation = environment.step(np.zeros(2, np.int64)).observation
    leaf = observation["a"][0] if nested else observation
    assert leaf.dtype == dtype and leaf.tolist() == [[0, 1], [0, 1]]
    with pytest.raises(ValueError, match=reason):
        environment.step(np.zeros(2, np.int64))


def test_observations_that_would_fill_the_memory_are_refused_before_all_are_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spaces_module, "MOST_OBSERVATION_BYTES", 100)
    sync.build(Recipe("CartPole-v1", {}), 6).close()
    with pytest.raises(BuildError, match="7 of 0.0 MiB would be more; see environment.arguments"):
        sync.build(Recipe("CartPole-v1", {}), 7)
