"""Environments stepped in turn."""

import numpy as np

from envs_server.backends import sync
from envs_server.envs import counting, masked_cartpole
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
