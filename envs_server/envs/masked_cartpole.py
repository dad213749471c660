"""CartPole-v1 without its velocities: only the cart's position and the pole's angle are seen.

An agent has to remember where things were to know where they are going. Apart from the observation
it is gymnasium's CartPole-v1: reward 1 per step, truncated after 500 steps.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.spaces import Box
from gymnasium.vector.utils import batch_space

# Of gymnasium's (position, velocity, angle, angular velocity).
_SEEN = [0, 2]


class HiddenVelocities(gymnasium.ObservationWrapper[np.ndarray, int, np.ndarray]):
    """A CartPole environment whose observations are `[2] float32`: position and angle."""

    def __init__(self, env: gymnasium.Env[np.ndarray, int]) -> None:
        super().__init__(env)
        self.observation_space = _positions(env.observation_space)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        """Position and angle of `observation [4] float32`."""
        return observation[_SEEN]


class HiddenVelocitiesVectorEnv(CartPoleVectorEnv):
    """gymnasium's vector CartPole whose observations are `[E, 2] float32`: position and angle."""

    def __init__(self, num_envs: int = 1, **arguments: Any) -> None:
        super().__init__(num_envs, **arguments)
        self.single_observation_space = _positions(self.single_observation_space)
        self.observation_space = batch_space(self.single_observation_space, num_envs)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts an episode in every environment."""
        observation, info = super().reset(seed=seed, options=options)
        return observation[:, _SEEN], info

    def step(
        self, action: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Takes `action [E]`."""
        observation, reward, terminated, truncated, info = super().step(action)
        return observation[:, _SEEN], reward, terminated, truncated, info


def hide_velocities(env: gymnasium.Env[np.ndarray, int]) -> HiddenVelocities:
    """Wraps a CartPole environment."""
    return HiddenVelocities(env)


def make(**arguments: Any) -> HiddenVelocities:
    """One masked CartPole-v1; `arguments` are gymnasium's."""
    return hide_velocities(gymnasium.make("CartPole-v1", disable_env_checker=True, **arguments))


def make_vec(num_envs: int, **arguments: Any) -> HiddenVelocitiesVectorEnv:
    """`num_envs` masked CartPole-v1 in one object; `arguments` as for `make`."""
    return HiddenVelocitiesVectorEnv(num_envs, **arguments)


def _positions(space: gymnasium.Space[Any]) -> Box:
    assert isinstance(space, Box)
    return Box(space.low[_SEEN], space.high[_SEEN], dtype=np.float32)
