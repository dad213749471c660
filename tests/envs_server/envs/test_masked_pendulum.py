"""The pendulum without its velocity is gymnasium's otherwise."""

import gymnasium
import numpy as np

from envs_server.envs.masked_pendulum import make


def test_where_it_points_is_seen_only() -> None:
    masked, full = make(max_episode_steps=4), gymnasium.make("Pendulum-v1", max_episode_steps=4)
    seen, _ = masked.reset(seed=3)
    everything, _ = full.reset(seed=3)
    assert masked.observation_space.contains(seen)
    np.testing.assert_array_equal(seen, everything[:2])
    for torque in (0.0, 1.5, -2.0, 0.3):
        seen, *rest = masked.step(np.float32([torque]))
        everything, *others = full.step(np.float32([torque]))
        np.testing.assert_array_equal(seen, everything[:2])
        assert rest == others
    assert rest[1:3] == [False, True]  # truncated, as after 200 steps by default
    assert make().spec.max_episode_steps == 200
