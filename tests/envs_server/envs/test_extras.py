"""Environments of the extras minatar, minigrid and popgym, where these are installed."""

from collections import deque
from typing import Any

import numpy as np
import pytest


@pytest.fixture
def minatar() -> Any:
    pytest.importorskip("minatar")
    from envs_server.envs import minatar

    return minatar


def test_minatar_has_objects_of_255_in_bytes_and_all_six_actions(minatar: Any) -> None:
    env = minatar.breakout()
    image, _ = env.reset(seed=0)
    assert env.observation_space.contains(image) and image.shape == (10, 10, 4)
    assert image[9, 4, 0] == 255 and image[..., 0].sum() == 255  # the paddle
    assert (image[1:4, :, 3] == 255).all()  # the bricks
    assert env.action_space.n == 6
    assert minatar.breakout(minimal_actions=True).action_space.n == 3
    for game in (minatar.asterix, minatar.freeway, minatar.seaquest):
        assert game().observation_space.contains(game().reset(seed=0)[0])


def test_a_seed_decides_a_minatar_game_whatever_was_played_before(minatar: Any) -> None:
    def played(env: Any) -> list[bytes]:
        env.reset(seed=5)
        images = []
        for action in np.random.default_rng(0).integers(6, size=60):
            image, _, terminated, _, _ = env.step(action)
            images.append((env.reset()[0] if terminated else image).tobytes())
        return images

    env = minatar.space_invaders(sticky_actions=0.5)
    assert played(env) == played(env) == played(minatar.space_invaders(sticky_actions=0.5))


def test_a_missed_ball_terminates_and_a_long_episode_is_truncated(minatar: Any) -> None:
    def last(env: Any) -> tuple[int, bool, bool]:
        env.reset(seed=1)
        for step in range(1, 100):
            _, reward, terminated, truncated, _ = env.step(0)
            assert isinstance(reward, float)
            if terminated or truncated:
                return step, terminated, truncated
        raise AssertionError("the ball should have been missed")

    num_steps, *ends = last(minatar.breakout())
    assert ends == [True, False]
    assert last(minatar.breakout(max_steps=num_steps - 1)) == (num_steps - 1, False, True)


def test_a_view_of_minigrid_is_a_one_hot_image() -> None:
    pytest.importorskip("minigrid")
    from envs_server.envs.minigrid import make

    env = make()
    image, _ = env.reset(seed=3)
    assert env.observation_space.contains(image) and image.shape == (7, 7, 20)
    codes = env.unwrapped.gen_obs()["image"]
    for start, stop, kind in ((0, 11, 0), (11, 17, 1), (17, 20, 2)):
        np.testing.assert_array_equal(image[..., start:stop].argmax(-1), codes[..., kind])
        np.testing.assert_array_equal(image[..., start:stop].sum(-1), 255)
    env = make("Empty-5x5", max_steps=3)
    env.reset(seed=0)
    assert [env.step(0)[3] for _ in range(3)] == [False, False, True]


def test_naming_the_suit_of_three_cards_ago_earns_1_in_51_steps_of_popgym() -> None:
    pytest.importorskip("popgym")
    from envs_server.envs.popgym import make

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
    np.testing.assert_allclose(rewards, [0] * 3 + [1 / 48] * 48)
    # A Discrete inside of a tuple is one-hot, too.
    observation, _ = make("AutoencodeEasy").reset(seed=0)
    assert observation[:2].sum() == observation[2:].sum() == 1
