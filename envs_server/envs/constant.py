"""An environment in which nothing happens: for measuring everything but environments.

Its observation never changes and its episode never ends. A step can take its time, by sleeping:
then many of them simulate a fleet of slow environments on few cores.
"""

import time
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, VectorEnv

_NUM_ACTIONS = 6


class Still(gymnasium.Env[np.ndarray, np.int64]):
    """One of them; see `StillVector` for the arguments."""

    def __init__(
        self, *, shape: Sequence[int] = (84, 84), dtype: str = "uint8", step_seconds: float = 0.0
    ) -> None:
        self._step_seconds = step_seconds
        self.observation_space = Box(0, 1, tuple(shape), np.dtype(dtype).type)
        self.action_space = Discrete(_NUM_ACTIONS)
        self._observation = np.ones(tuple(shape), dtype)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Ones, as ever."""
        super().reset(seed=seed)
        return self._observation, {}

    def step(self, action: int | np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Takes its time, and is where it was."""
        if self._step_seconds:  # even a sleep of 0 gives the processor away
            time.sleep(self._step_seconds)
        return self._observation, 0.0, False, False, {}


class StillVector(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """Many that step together: all of them in the time of one.

    Args:
      num_envs: how many.
      arguments: `shape` and `dtype` of one's observation; `step_seconds`, how long a step of all
        of them sleeps.
    """

    def __init__(self, num_envs: int, **arguments: Any) -> None:
        # Its arrays are made once: a step of it must cost nothing but the call.
        one = Still(**arguments)
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self.single_observation_space = one.observation_space
        self.single_action_space = one.action_space
        self._step_seconds = arguments.get("step_seconds", 0.0)
        self._observation = np.repeat(one.reset()[0][np.newaxis], num_envs, axis=0)
        self._reward = np.zeros(num_envs, np.float64)
        self._is_over = np.zeros(num_envs, np.bool_)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Ones, as ever."""
        return self._observation, {}

    def step(
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Takes its time, and is where it was."""
        if self._step_seconds:
            time.sleep(self._step_seconds)
        return self._observation, self._reward, self._is_over, self._is_over, {}


make = Still
make_vec = StillVector
