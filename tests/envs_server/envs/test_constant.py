"""The constant environment does nothing, and takes as long as it should."""

import time

import numpy as np
import pytest

from envs_server.envs.constant import make, make_vec


def test_many_are_like_one_and_a_step_of_all_sleeps_once(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    one, many = make(shape=(2, 3)), make_vec(4, shape=(2, 3), step_seconds=0.05)
    assert many.single_observation_space == one.observation_space
    assert many.single_action_space == one.action_space
    seen, *_ = one.step(0)
    all_seen, reward, terminated, truncated, _ = many.step(np.zeros(4, np.int64))
    np.testing.assert_array_equal(all_seen, np.stack([seen] * 4))
    assert seen.dtype == all_seen.dtype == np.uint8
    assert not (reward.any() or terminated.any() or truncated.any())
    make(step_seconds=0.02).step(0)
    assert slept == [0.05, 0.02]
