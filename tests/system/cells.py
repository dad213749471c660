"""Probes of what networks make of observations: name the marked cell, and act without any sign."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

_CELLS = 8
_STEPS = 10


class Cells(gymnasium.Env[Any, Any]):
    """Ten steps, a reward of 1 for each in which the action is the cell of the observation."""

    action_space = spaces.Discrete(_CELLS)

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self.observation_space = {
            "bytes": spaces.Box(0, 1, (_CELLS,), np.uint8),
            "discrete": spaces.Discrete(_CELLS),
            "later": spaces.Discrete(_CELLS, start=5),
            "many": spaces.Discrete(300),
            "two": spaces.MultiDiscrete([2, 4]),
            "bounded": spaces.Box(-100, 600, (_CELLS,), np.int32),
            "picture": spaces.Box(-1, 1, (3, 36, 40), np.float32),
        }[kind]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._step = 0
        return self._observation(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = float(action == self._cell)
        self._step += 1
        return self._observation(), reward, self._step == _STEPS, False, {}

    def _observation(self) -> Any:
        self._cell = cell = int(self.np_random.integers(_CELLS))
        if self._kind == "picture":  # a square on black
            picture = np.full((3, 36, 40), -1, np.float32)
            down, right = 18 * (cell // 4), 10 * (cell % 4)
            picture[:, down : down + 18, right : right + 10] = 1
            return picture
        if self._kind in ("bytes", "bounded"):
            marks = np.arange(_CELLS) == cell
            is_bytes = self._kind == "bytes"
            return marks.astype(np.uint8) if is_bytes else np.int32(700) * marks - np.int32(100)
        names = {"later": cell + 5, "many": 37 * cell, "two": np.array([cell // 4, cell % 4])}
        return names.get(self._kind, cell)


class Nothing(gymnasium.Env[Any, Any]):
    """One step, an observation of zeros, a reward of 1 for the last of three actions."""

    observation_space = spaces.Box(-1, 1, (4,), np.float32)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(4, np.float32), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.zeros(4, np.float32), float(action == 2), True, False, {}


def make(kind: str) -> gymnasium.Env[Any, Any]:
    return Nothing() if kind == "nothing" else Cells(kind)
