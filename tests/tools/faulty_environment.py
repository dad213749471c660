"""A wrapper whose environment does, once, what a file in a folder asks for.

Whoever finds the file first deletes it and obeys: one environment of all, on this machine.
"""

import os
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

# The folder; what is asked for is a file's name.
VARIABLE = "SEEDRL_CHAOS_FAULTS"
FAULTS = ("raises", "hangs", "nan", "absurd", "exits", "slow", "grows")
# Twice the deadline of the run.
HANG_SECONDS = 20.0
_GROWTH_MIB = 800
_LOOK_SECONDS = 0.25
_next_look = 0.0
_kept: list[np.ndarray] = []


class Faulty(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Obeys in `step`."""

    def step(self, action: Any) -> Any:
        """A step, or what was asked for."""
        fault = _asked()
        if fault == "raises":
            raise RuntimeError("the simulator has lost its licence")
        if fault == "exits":
            os._exit(0)
        if fault in ("hangs", "slow"):
            time.sleep(HANG_SECONDS if fault == "hangs" else 0.5)
        if fault == "grows":
            _kept.append(np.ones(_GROWTH_MIB * 2**17))
        observation, reward, *others = super().step(action)
        if fault == "nan":
            observation = np.full_like(observation, np.nan)
        if fault == "absurd":
            reward = 1e38
        return observation, reward, *others


def _asked() -> str:
    """What this environment has to do; "" for nothing."""
    global _next_look
    now = time.monotonic()
    if now < _next_look:
        return ""
    # All environments of a process look in turn: a look takes longer than a step.
    _next_look = now + _LOOK_SECONDS
    for path in Path(os.environ[VARIABLE]).iterdir():
        try:
            path.unlink()
        except FileNotFoundError:
            continue  # another was faster
        return path.name
    return ""
