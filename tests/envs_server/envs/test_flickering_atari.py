"""Frames are blanked with the given probability, and a seed decides which."""

from typing import Any

import numpy as np
import pytest
from gymnasium.vector import VectorEnv

pytest.importorskip("ale_py")


@pytest.mark.gate  # Atari: tests/envs_server/test_vector.py
def test_frames_are_blanked_at_random_and_the_others_are_the_game() -> None:
    from envs_server.envs.flickering_atari import make_vec

    def played(env: VectorEnv[Any, Any, Any], seed: int, steps: int = 30) -> np.ndarray:
        frames = [env.reset(seed=seed)[0].copy()]
        for _ in range(steps):
            frames.append(env.step(np.zeros(2, np.int64))[0].copy())
        return np.stack(frames)

    size = {"img_height": 42, "img_width": 42}
    flickering = make_vec(2, **size)
    shown, blanked = played(make_vec(2, probability=0.0, **size), 5), played(flickering, 5)
    assert shown.shape == (31, 2, 42, 42) and shown.any((2, 3)).all()
    assert make_vec(1, **size).reset()[0].shape == (1, 42, 42)  # without a seed
    is_blank = ~blanked.any((2, 3))
    assert 0.25 < is_blank.mean() < 0.75  # four stds
    np.testing.assert_array_equal(blanked[~is_blank], shown[~is_blank])
    assert (is_blank[:11] != ~played(flickering, 6, 10).any((2, 3))).any()
    np.testing.assert_array_equal(blanked[:11], played(flickering, 5, 10))


@pytest.mark.gate  # of several games: above
def test_a_single_game_is_repeated_by_its_seed() -> None:
    from envs_server.envs.flickering_atari import make

    env, other = make(game="Breakout"), make(game="Breakout")
    first, _ = env.reset(seed=3)
    assert env.observation_space.contains(first)
    env.step(np.int64(1))
    np.testing.assert_array_equal(env.reset(seed=3)[0], first)
    np.testing.assert_array_equal(other.reset(seed=3)[0], first)
