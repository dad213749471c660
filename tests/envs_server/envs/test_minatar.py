"""Games of MinAtar: images, seeds and ends."""

import numpy as np
import pytest

pytest.importorskip("minatar")

from envs_server.envs import minatar


def test_objects_are_255_in_images_of_bytes_and_all_six_actions_are_there() -> None:
    env = minatar.breakout()
    image, _ = env.reset(seed=0)
    assert env.observation_space.contains(image) and image.shape == (10, 10, 4)
    assert image[9, 4, 0] == 255 and image[..., 0].sum() == 255  # the paddle
    assert (image[1:4, :, 3] == 255).all()  # the bricks
    assert env.action_space.n == 6
    assert minatar.breakout(minimal_actions=True).action_space.n == 3


def test_a_seed_decides_the_game_whatever_was_played_before() -> None:
    def played(env: minatar.MinAtar) -> list[bytes]:
        env.reset(seed=5)
        images = []
        for action in np.random.default_rng(0).integers(6, size=60):
            image, _, terminated, _, _ = env.step(action)
            images.append((env.reset()[0] if terminated else image).tobytes())
        return images

    env = minatar.space_invaders(sticky_actions=0.5)
    assert played(env) == played(env) == played(minatar.space_invaders(sticky_actions=0.5))


def test_a_missed_ball_terminates_and_a_long_episode_is_truncated() -> None:
    def last(env: minatar.MinAtar) -> tuple[int, bool, bool]:
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


@pytest.mark.parametrize("game", ["asterix", "freeway", "seaquest"])
def test_there_are_three_more_games(game: str) -> None:
    env = getattr(minatar, game)()
    assert env.observation_space.contains(env.reset(seed=0)[0])
