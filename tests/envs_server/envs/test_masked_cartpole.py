"""CartPole without velocities is CartPole otherwise."""

import gymnasium
import numpy as np

from envs_server.envs.masked_cartpole import make, make_vec


def test_the_wrapper_shows_position_and_angle_only() -> None:
    masked, full = make(), gymnasium.make("CartPole-v1")
    seen, _ = masked.reset(seed=3)
    everything, _ = full.reset(seed=3)
    assert masked.observation_space.contains(seen)
    np.testing.assert_array_equal(seen, everything[[0, 2]])
    for action in (0, 1, 1, 0):
        seen, *rest = masked.step(action)
        everything, *others = full.step(action)
        np.testing.assert_array_equal(seen, everything[[0, 2]])
        assert rest == others


def test_the_vector_environment_shows_the_same_columns() -> None:
    masked = make_vec(4)
    full = gymnasium.make_vec("CartPole-v1", 4)
    seen, _ = masked.reset(seed=3)
    everything, _ = full.reset(seed=3)
    assert masked.observation_space.contains(seen)
    np.testing.assert_array_equal(seen, everything[:, [0, 2]])
    for _ in range(30):
        actions = np.ones(4, np.int64)
        seen, *rest, _ = masked.step(actions)
        everything, *others, _ = full.step(actions)
        np.testing.assert_array_equal(seen, everything[:, [0, 2]])
        np.testing.assert_array_equal(rest, others)


def test_both_truncate_after_500_steps_by_default() -> None:
    assert make().spec.max_episode_steps == make_vec(1).max_episode_steps == 500
    assert make(max_episode_steps=7).spec.max_episode_steps == 7
    assert make_vec(1, max_episode_steps=7).max_episode_steps == 7
