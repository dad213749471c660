"""Environments with a vector implementation of their own."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from envs_server.adapter import Adapter
from envs_server.backends import native
from envs_server.envs import catch, masked_cartpole
from envs_server.errors import BuildError
from envs_server.recipe import Recipe
from seedrl.types import StepType


def _balance(observation: np.ndarray) -> np.ndarray:
    """A hand-made policy that keeps CartPole's pole up for a whole episode."""
    position, velocity, angle, spin = observation.T
    return (angle + 0.4 * spin + 0.05 * position + 0.1 * velocity > 0).astype(np.int64)


def test_cartpole_truncates_at_500_steps_and_bootstraps() -> None:
    adapter = Adapter(native.build(Recipe("CartPole-v1", {}), 3))
    step = adapter.reset([1, 2, 3])
    returns = np.zeros(3)
    for number in range(1, 501):
        step = adapter.step(_balance(step.observation))
        returns += step.reward
        expected = StepType.LAST if number == 500 else StepType.MID
        assert step.step_type.tolist() == [expected] * 3, number
    assert step.discount.tolist() == [1, 1, 1]
    assert returns.tolist() == [500, 500, 500]
    assert np.abs(step.observation).max() > 0
    step = adapter.step(np.zeros(3, np.int64))
    assert step.step_type.tolist() == [StepType.FIRST] * 3
    assert (np.abs(step.observation) <= 0.05).all()


def test_cartpole_terminates_when_the_pole_falls() -> None:
    adapter = Adapter(native.build(Recipe("CartPole-v1", {}), 2))
    step = adapter.reset([1, 2])
    while not (step.step_type == StepType.LAST).any():
        step = adapter.step(np.zeros(2, np.int64))
    row = int(np.argmax(step.step_type == StepType.LAST))
    assert step.discount[row] == 0 and step.reward[row] == 1
    assert abs(step.observation[row, 2]) > 12 * np.pi / 180  # the fallen pole itself


def test_environments_differ_and_reproduce_from_the_seed() -> None:
    recipe = Recipe("CartPole-v1", {})
    first, again, other = (native.build(recipe, 2).reset(s) for s in ([1, 2], [1, 2], [2, 1]))
    np.testing.assert_array_equal(first, again)
    assert len(np.unique(np.concatenate([first, other]), axis=0)) == 4


def test_it_is_available_where_it_honours_the_whole_recipe() -> None:
    wrappers = (masked_cartpole.hide_velocities,)
    vector = masked_cartpole.make_vec
    assert native.is_available(Recipe("CartPole-v1", {}))
    assert native.is_available(Recipe("m:make", {}, (), masked_cartpole.make, vector))
    assert not native.is_available(Recipe("CartPole-v1", {}, wrappers))
    assert not native.is_available(Recipe("Acrobot-v1", {}))
    assert not native.is_available(Recipe("c:make", {}, (), catch.make))


def _other_mode(num_envs: int) -> Any:
    return SyncVectorEnv([catch.make] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)


@pytest.mark.parametrize(
    ("recipe", "reason"),
    [
        (
            Recipe("CartPole-v1", {}, (masked_cartpole.hide_velocities,)),
            "cannot be wrapped under vectorization native",
        ),
        (Recipe("c:make", {}, (), catch.make), "c:make has no vector factory c:make_vec; use sync"),
        (
            Recipe("c:make", {}, (), catch.make, _other_mode),
            "expected a vector environment with autoreset mode NEXT_STEP, SyncVectorEnv has "
            "SAME_STEP; use vectorization sync",
        ),
    ],
)
def test_what_it_cannot_do_is_refused(recipe: Recipe, reason: str) -> None:
    with pytest.raises(BuildError) as refusal:
        native.build(recipe, 2)
    assert reason in str(refusal.value)


def test_an_id_without_a_vector_entry_point_is_gymnasiums_own_error() -> None:
    with pytest.raises(gymnasium.error.Error, match="vector entry point"):
        native.build(Recipe("Acrobot-v1", {}), 2)
