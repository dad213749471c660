"""RepeatPrevious of POPGym, played from memory."""

from collections import deque

import numpy as np
import pytest

pytest.importorskip("popgym")

from envs_server.envs.popgym import make


def test_naming_the_suit_of_three_cards_ago_earns_1_in_51_steps() -> None:
    env = make()
    observation, _ = env.reset(seed=2)
    suits = deque([0, 0, 0, 0], maxlen=4)
    rewards, terminated = [], False
    while not terminated:
        assert env.observation_space.contains(observation) and observation.sum() == 1
        suits.append(int(observation.argmax()))
        observation, reward, terminated, truncated, _ = env.step(suits[0])
        assert not truncated
        rewards.append(reward)
    assert len(rewards) == 51
    np.testing.assert_allclose(rewards, [0] * 3 + [1 / 48] * 48)


def test_what_is_discrete_in_a_tuple_is_one_hot_too() -> None:
    env = make("AutoencodeEasy")
    observation, _ = env.reset(seed=0)
    assert env.observation_space.shape == (2 + 4,)
    assert observation[:2].sum() == observation[2:].sum() == 1
