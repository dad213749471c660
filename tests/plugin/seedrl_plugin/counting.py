"""The counting environment with real actions: what it counts and hashes is the library's."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

from envs_server.envs.counting import Counting


class RealActions(gymnasium.ActionWrapper[np.ndarray, np.ndarray, np.int64]):
    """Takes one action of `[n] float32` within `bounds`, and hands its code on as the action."""

    def __init__(self, environment: Counting, bounds: Sequence[tuple[float, float]]) -> None:
        super().__init__(environment)
        low, high = np.array(bounds, np.float32).T
        self.action_space = gymnasium.spaces.Box(low, high)

    def action(self, action: np.ndarray) -> np.int64:
        """See `code_of`."""
        return np.int64(code_of(action))


def code_of(action: Any) -> int:
    """A number of 32 bits for `[n] float32`: other for any other numbers."""
    code = 0x811C_9DC5
    # Plus 0: -0 and 0 are the same number.
    for bits in (np.asarray(action, np.float32) + np.float32(0)).view(np.uint32).tolist():
        code = (code ^ bits) * 0x9E37_79B1 & 0xFFFF_FFFF
        code ^= code >> 15
    return code


def make(bounds: Sequence[tuple[float, float]], lengths: Sequence[int] = (7,)) -> RealActions:
    """The factory that a configuration names: `seedrl_plugin.counting:make`."""
    return RealActions(Counting(lengths=lengths), bounds)
