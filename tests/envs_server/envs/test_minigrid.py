"""Tasks of MiniGrid."""

import numpy as np
import pytest

pytest.importorskip("minigrid")

from envs_server.envs.minigrid import make


def test_a_view_is_a_one_hot_image_of_what_minigrid_shows() -> None:
    env = make()
    image, _ = env.reset(seed=3)
    assert env.observation_space.contains(image) and image.shape == (7, 7, 20)
    codes = env.unwrapped.gen_obs()["image"]
    for start, stop, kind in ((0, 11, 0), (11, 17, 1), (17, 20, 2)):
        np.testing.assert_array_equal(image[..., start:stop].argmax(-1), codes[..., kind])
        np.testing.assert_array_equal(image[..., start:stop].sum(-1), 255)


def test_other_tasks_have_a_name() -> None:
    env = make("Empty-5x5", max_steps=3)
    env.reset(seed=0)
    assert [env.step(0)[3] for _ in range(3)] == [False, False, True]
