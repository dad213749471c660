"""Catch: a ball falls down a board, a paddle on the bottom row must be under it.

As in bsuite (Osband et al. 2020, "Behaviour Suite for Reinforcement Learning"): the ball starts in
a random column of the top row and falls one row per step; actions 0, 1, 2 move the paddle left, not
at all, right. The last step of an episode, in which the ball reaches the bottom row, pays 1 if the
paddle is under it, else -1. Episodes terminate after `rows - 1` steps.
"""

from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

_CELL_PIXELS = 16


class Catch(gymnasium.Env[np.ndarray, np.int64]):
    """Observations are `[rows, columns] float32`: 1 at ball and paddle, else 0."""

    def __init__(
        self,
        *,
        rows: int = 10,
        columns: int = 5,
        render_mode: Literal["rgb_array"] | None = None,
    ) -> None:
        if rows < 2 or columns < 1:
            raise ValueError(f"expected 2 rows and 1 column at least, got {rows} and {columns}")
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": 5}
        self.render_mode = render_mode
        self._rows, self._columns = rows, columns
        self.observation_space = Box(0, 1, (rows, columns), np.float32)
        self.action_space = Discrete(3)
        self._ball_row = self._ball_column = self._paddle_column = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Drops the next ball; the paddle starts in the middle."""
        super().reset(seed=seed)
        self._ball_row = 0
        self._ball_column = int(self.np_random.integers(self._columns))  # all that is random
        self._paddle_column = self._columns // 2
        return self._board(), {}

    def step(self, action: int | np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Moves the paddle, then lets the ball fall by one row."""
        column = self._paddle_column + int(action) - 1
        self._paddle_column = min(max(column, 0), self._columns - 1)  # a wall on both sides
        self._ball_row += 1
        terminated = self._ball_row == self._rows - 1
        is_caught = self._paddle_column == self._ball_column
        reward = (1.0 if is_caught else -1.0) if terminated else 0.0
        return self._board(), reward, terminated, False, {}

    def render(self) -> np.ndarray:
        """The board as a person sees it: `[16 rows, 16 columns, 3] uint8`."""
        is_bright = (self._board() > 0)[:, :, np.newaxis]
        cell = np.full((_CELL_PIXELS, _CELL_PIXELS, 3), 255, np.uint8)
        return np.kron(is_bright, cell)

    def _board(self) -> np.ndarray:
        board = np.zeros((self._rows, self._columns), np.float32)
        # One plane for both: in the last row they are the same number if the ball is caught.
        board[self._ball_row, self._ball_column] = board[-1, self._paddle_column] = 1
        return board


make = Catch
