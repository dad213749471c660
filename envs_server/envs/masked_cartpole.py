"""CartPole-v1 without its velocities: only the cart's position and the pole's angle are seen.

An agent has to remember where things were to know where they are going. Apart from the observation,
`[2] float32`, it is gymnasium's CartPole-v1: reward 1 per step, truncated after 500 steps.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.spaces import Box
from gymnasium.vector import VectorEnv
from gymnasium.wrappers import TransformObservation
from gymnasium.wrappers.vector import TransformObservation as TransformObservations

# Of gymnasium's (position, velocity, angle, angular velocity).
_SEEN = [0, 2]


def hide_velocities(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """Wraps a CartPole environment."""
    return TransformObservation(env, lambda seen: seen[_SEEN], _positions(env.observation_space))


def make(**arguments: Any) -> gymnasium.Env[Any, Any]:
    """One masked CartPole-v1; `arguments` are gymnasium's."""
    return hide_velocities(gymnasium.make("CartPole-v1", disable_env_checker=True, **arguments))


def make_vec(num_envs: int, **arguments: Any) -> VectorEnv[Any, Any, Any]:
    """`num_envs` masked CartPole-v1 in one object; `arguments` as for `make`."""
    steps = arguments.get("max_episode_steps", 1)
    if type(steps) is not int or steps < 1:  # -1: no limit to `make`, here the end of each step
        raise ValueError("max_episode_steps: expected at least 1")
    # The class itself: `make_vec` would wrap it once more.
    env = CartPoleVectorEnv(num_envs, **arguments)
    single = _positions(env.single_observation_space)
    return TransformObservations(env, lambda seen: seen[:, _SEEN], None, single)


def _positions(space: gymnasium.Space[Any]) -> Box:
    assert isinstance(space, Box)
    return Box(space.low[_SEEN], space.high[_SEEN], dtype=np.float32)
