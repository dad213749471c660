"""Asks for the action that repeats what it shows: of several choices, or numbers without bounds."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, MultiBinary, MultiDiscrete

STEPS = 8
COUNTS = (3, 4, 5)
_SPACES: dict[str, tuple[gymnasium.Space[Any], gymnasium.Space[Any]]] = {
    "several": (MultiDiscrete(COUNTS), MultiDiscrete(COUNTS, start=[1, 0, -2])),
    "binary": (MultiBinary(3), MultiBinary(3)),
    "unbounded": (Box(-3, 3, (2,), np.float32), Box(-np.inf, np.inf, (2,), np.float32)),
}


class Matching(gymnasium.Env[Any, Any]):
    """A step pays 1 for all elements that match, or minus how far they are on average."""

    def __init__(self, kind: str) -> None:
        self.observation_space, self.action_space = _SPACES[kind]
        self._step = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Shows the first."""
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self._step, self._shown = 0, self.observation_space.sample()
        return self._shown, {}

    def step(self, action: Any) -> Any:
        """Pays for the one shown, and shows another."""
        assert self.action_space.contains(action), action
        wanted = self._shown + getattr(self.action_space, "start", 0)
        if isinstance(self.action_space, Box):
            reward = -float(np.mean(np.abs(action - wanted)))
        else:
            reward = float(np.mean(action == wanted))
        self._step, self._shown = self._step + 1, self.observation_space.sample()
        return self._shown, reward, self._step == STEPS, False, {}


make = Matching
