"""Environments that write down which episodes they play: by seed, and by what each begins with."""

import os
from typing import Any

import gymnasium
import numpy as np

VARIABLE = "SEEDRL_EPISODES"


class RecordedEpisodes(gymnasium.Wrapper[Any, Any, Any, Any]):
    """The environment it is given; each reset adds a line to the file that the variable names."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """See Env."""
        observation, info = self.env.reset(seed=seed, options=options)
        line = f"{'' if seed is None else seed} {np.asarray(observation).tobytes().hex()}\n"
        # One write of one line: those of several processes do not mix.
        with open(os.environ[VARIABLE], "ab", buffering=0) as file:
            file.write(line.encode())
        return observation, info
