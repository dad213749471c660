"""Key and door: fetch a key in a small grid, then go to the door; all places are drawn anew.

Actions 0 to 3 move up, down, left and right; a wall keeps the agent where it is. Each step costs
0.01, the key pays 0.5, and the door 1 to an agent with the key, which ends the episode. One without
the key may stand on the door. An episode is cut after 50 steps. The best mean return is about 1.43,
that of random actions about -0.2.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

_MOVES = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)])


class KeyDoor(gymnasium.Env[np.ndarray, np.int64]):
    """Observations are `[7] float32`: rows and columns of agent, key and door, and has it the key.

    All from 0 to 1. Raises ValueError for less than 2 rows.
    """

    def __init__(self, *, size: int = 5, max_steps: int = 50) -> None:
        if size < 2:
            raise ValueError(f"size: expected at least 2 rows, got {size}")
        self._size, self._max_steps = size, max_steps
        self.observation_space = Box(0, 1, (7,), np.float32)
        self.action_space = Discrete(4)
        # Of agent, key and door, `[3, 2]`.
        self._places = np.zeros((3, 2), np.int64)
        self._has_key = False
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Draws three different places."""
        super().reset(seed=seed)
        # Without replacement: a key under the agent, or at the door, would be no task.
        cells = self.np_random.choice(self._size**2, 3, replace=False)
        self._places = np.stack(np.divmod(cells, self._size), axis=-1)
        self._has_key, self._steps = False, 0
        return self._seen(), {}

    def step(self, action: int | np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Moves the agent."""
        self._steps += 1
        agent, key, door = self._places
        agent[:] = np.clip(agent + _MOVES[int(action)], 0, self._size - 1)
        reward = -0.01
        if not self._has_key and np.array_equal(agent, key):
            self._has_key = True
            reward += 0.5
        terminated = self._has_key and np.array_equal(agent, door)
        reward += float(terminated)
        # Not both: a value after the door would be bootstrapped from.
        truncated = not terminated and self._steps >= self._max_steps
        return self._seen(), reward, terminated, truncated, {}

    def _seen(self) -> np.ndarray:
        places = self._places.ravel() / (self._size - 1)
        return np.append(places, self._has_key).astype(np.float32)


make = KeyDoor
