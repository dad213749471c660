"""A corridor: walk to its right end."""

from typing import Any

import gymnasium
import numpy as np

LEFT, RIGHT = 0, 1


class Corridor(gymnasium.Env[np.ndarray, np.int64]):
    """`length` cells in a row; episodes start in the leftmost one.

    Observations are one-hot positions `[length] float32`. Reaching the right end gives 1 and
    terminates; every other step gives 0. An episode is truncated after `max_steps` steps.
    """

    def __init__(self, length: int, max_steps: int) -> None:
        if length < 2:
            raise ValueError(f"corridor length: expected at least 2, got {length}")
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (length,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
        self._length = length
        self._max_steps = max_steps
        self._position = 0
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Back to the leftmost cell."""
        super().reset(seed=seed, options=options)
        self._position = 0
        self._steps = 0
        return self._observation(), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One cell to the left (not beyond the wall) or to the right."""
        move = 1 if action == RIGHT else -1
        self._position = max(self._position + move, 0)
        self._steps += 1
        is_at_end = self._position == self._length - 1
        is_out_of_time = not is_at_end and self._steps >= self._max_steps
        return self._observation(), float(is_at_end), is_at_end, is_out_of_time, {}

    def _observation(self) -> np.ndarray:
        return np.eye(self._length, dtype=np.float32)[self._position]


def make(length: int = 5, max_steps: int = 50) -> Corridor:
    """The factory that a configuration names: `seedrl_plugin.env:make`."""
    return Corridor(length, max_steps)
