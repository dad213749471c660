"""Delayed recall: a symbol is shown once, and must be named after a stretch in which nothing is.

An observation is `[symbols + 1] float32`. The first of an episode has a 1 at the place of a symbol,
drawn uniformly; `delay` rows of zeros follow; then a row with a 1 at the last place asks. There are
`symbols` actions: the answer to that row pays 1 if it is the symbol and else 0, and terminates the
episode after `delay + 2` steps. All other actions are ignored and pay 0.

The mean return of perfect memory is 1. Without memory all asking rows look the same: no policy has
more than `1 / symbols`.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete


class DelayedRecall(gymnasium.Env[np.ndarray, np.int64]):
    """One such environment; raises ValueError for fewer than two symbols or a negative delay."""

    def __init__(self, *, symbols: int = 4, delay: int = 20) -> None:
        if symbols < 2 or delay < 0:
            got = f"symbols={symbols}, delay={delay}"
            raise ValueError(f"expected at least 2 symbols and a delay of 0 or more, got {got}")
        self._symbols, self._delay = symbols, delay
        self.observation_space = Box(0, 1, (symbols + 1,), np.float32)
        self.action_space = Discrete(symbols)
        self._cue = self._row = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Shows the next symbol."""
        super().reset(seed=seed)
        self._cue = int(self.np_random.integers(self._symbols))
        self._row = 0
        return self._shown(self._cue), {}

    def step(self, action: int | np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Takes the answer if the row before asked for it."""
        # The asking row is the last but one; the answer to it comes with the step that ends.
        self._row += 1
        terminated = self._row == self._delay + 2
        # The action of any other row counts for nothing: nothing in between helps to remember.
        is_right = terminated and int(action) == self._cue
        asks = self._row == self._delay + 1
        observation = self._shown(self._symbols if asks else None)
        return observation, float(is_right), terminated, False, {}

    def _shown(self, place: int | None) -> np.ndarray:
        observation = np.zeros(self._symbols + 1, np.float32)
        if place is not None:
            observation[place] = 1
        return observation


make = DelayedRecall
