"""Frames are blanked with the given probability, and seeds decide which."""

import numpy as np
import pytest

from envs_server.build import build, read_recipe
from seedrl.wire.seedrl_pb2 import Environment

pytest.importorskip("ale_py")


@pytest.mark.gate  # Atari: tests/envs_server/test_vector.py
def test_frames_are_blanked_at_random_and_the_others_are_the_game() -> None:
    def played(seeds: list[int], *wrappers: str, steps: int = 30) -> np.ndarray:
        arguments = '{"img_height": 42, "img_width": 42}'
        asked = Environment(id="ALE/Pong-v5", arguments=arguments, wrappers=wrappers)
        env = build(read_recipe(asked, ()), "atari", 2)
        frames = [env.reset(seeds).copy()]
        for _ in range(steps):
            frames.append(env.step(np.zeros(2, np.int64)).timestep.observation.copy())
        env.close()
        return np.stack(frames)

    flicker = "envs_server.envs.flickering_atari:flicker"
    shown, blanked = played([5, 6]), played([5, 6], flicker)
    assert shown.shape == (31, 2, 42, 42) and shown.any((2, 3)).all()
    is_blank = ~blanked.any((2, 3))
    assert 0.25 < is_blank.mean() < 0.75  # four stds
    np.testing.assert_array_equal(blanked[~is_blank], shown[~is_blank])
    assert (is_blank[:11] != ~played([7, 8], flicker, steps=10).any((2, 3))).any()
    np.testing.assert_array_equal(blanked[:11], played([5, 6], flicker, steps=10))
