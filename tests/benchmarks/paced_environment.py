"""An environment whose pace is in a file.

Each process that has some takes a number of its own, 0 upwards. All reread the file while they
step: so a live run changes its pace.
"""

import functools
import itertools
import json
import os
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

_PACE = "pace.json"
_REREAD_SECONDS = 0.05
_EPISODE_STEPS = 200


def set_pace(folder: Path, **milliseconds: float) -> None:
    """A step of the process with number N sleeps `process_N` ms, or `others` if that is not set."""
    part = folder / f"{_PACE}.part"
    part.write_text(json.dumps(milliseconds))
    part.replace(folder / _PACE)


@functools.cache
def _number(folder: str) -> int:
    for number in itertools.count():
        try:
            os.close(os.open(f"{folder}/process_{number}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        return number
    raise AssertionError


class Paced(gymnasium.Env[np.ndarray, np.int64]):
    """Its episodes have 200 steps, in which nothing happens but time.

    `folder`: of the file that `set_pace` writes.
    """

    def __init__(self, folder: str) -> None:
        self.observation_space = Box(-1, 1, (4,))
        self.action_space = Discrete(2)
        self._folder = folder
        self._observation = np.zeros(4, np.float32)
        self._seconds = self._next = 0.0
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return self._observation, {}

    def step(self, action: int | np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if (now := time.monotonic()) >= self._next:
            self._next = now + _REREAD_SECONDS
            pace = json.loads(Path(self._folder, _PACE).read_text())
            own = f"process_{_number(self._folder)}"
            self._seconds = pace.get(own, pace["others"]) / 1e3
        if self._seconds:
            time.sleep(self._seconds)
        self._steps += 1
        return self._observation, 1.0, False, self._steps >= _EPISODE_STEPS, {}
