"""Pendulum-v1 without its angular velocity: only where the pendulum points is seen.

An agent has to remember where it pointed to know how fast it turns. Apart from the observation it
is gymnasium's Pendulum-v1: truncated after 200 steps, never terminated.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box

# Of gymnasium's (cosine, sine, angular velocity).
_NUM_SEEN = 2


class HiddenVelocity(gymnasium.ObservationWrapper[np.ndarray, np.ndarray, np.ndarray]):
    """A Pendulum environment whose observations are `[2] float32`: cosine and sine."""

    def __init__(self, env: gymnasium.Env[np.ndarray, np.ndarray]) -> None:
        super().__init__(env)
        space = env.observation_space
        assert isinstance(space, Box)
        self.observation_space = Box(space.low[:_NUM_SEEN], space.high[:_NUM_SEEN])

    def observation(self, observation: np.ndarray) -> np.ndarray:
        """Cosine and sine of `observation [3] float32`."""
        return observation[:_NUM_SEEN]


def make(**arguments: Any) -> HiddenVelocity:
    """One masked Pendulum-v1; `arguments` are gymnasium's."""
    return HiddenVelocity(gymnasium.make("Pendulum-v1", disable_env_checker=True, **arguments))
