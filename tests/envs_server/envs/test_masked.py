"""CartPole and the pendulum without velocities are gymnasium's otherwise."""

import functools

import gymnasium
import numpy as np
import pytest

from envs_server.envs import masked_cartpole, masked_pendulum

_PENDULUM = [np.float32([torque]) for torque in (0.0, 1.5, -2.0, 0.3)]


@pytest.mark.parametrize(
    ("module", "name", "seen", "actions", "max_steps"),
    [
        (masked_cartpole, "CartPole-v1", [0, 2], [0, 1, 1, 0], 500),
        (masked_pendulum, "Pendulum-v1", [0, 1], _PENDULUM, 200),
    ],
    ids=["cartpole", "pendulum"],
)
def test_one_shows_positions_only(module, name, seen, actions, max_steps) -> None:  # type: ignore[no-untyped-def]
    masked, full = (
        make(max_episode_steps=4) for make in (module.make, functools.partial(gymnasium.make, name))
    )
    shown, everything = masked.reset(seed=3)[0], full.reset(seed=3)[0]
    for action in actions:
        assert masked.observation_space.contains(shown)
        np.testing.assert_array_equal(shown, everything[seen])
        (shown, *rest), (everything, *others) = masked.step(action), full.step(action)
        assert rest == others
    assert rest[1:3] == [False, True]
    assert module.make().spec.max_episode_steps == max_steps


def test_many_cartpoles_show_the_same_columns() -> None:
    masked, full = masked_cartpole.make_vec(4), gymnasium.make_vec("CartPole-v1", 4)
    shown, everything = masked.reset(seed=3)[0], full.reset(seed=3)[0]
    for _ in range(30):
        assert masked.observation_space.contains(shown)
        np.testing.assert_array_equal(shown, everything[:, [0, 2]])
        actions = np.ones(4, np.int64)
        shown, *rest, _ = masked.step(actions)
        everything, *others, _ = full.step(actions)
        np.testing.assert_array_equal(rest, others)
    assert masked.unwrapped.max_episode_steps == 500
