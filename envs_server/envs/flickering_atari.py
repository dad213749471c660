"""Atari games whose frames are blanked at random: a test of memory (the extra `atari`).

`flicker` is for `environment.wrappers`, and takes a vector of ALE's games. Each frame, the first of
an episode too, is black with probability 0.5, so that neither the newest frame nor a few stacked
ones show how the ball moves.

Source: "Deep Recurrent Q-Learning for Partially Observable MDPs" (Hausknecht and Stone 2015),
"Flickering Atari games".
"""

from typing import Any, ClassVar

import numpy as np
from gymnasium.vector import VectorEnv, VectorObservationWrapper

_PROBABILITY = 0.5


class Flicker(VectorObservationWrapper):
    """Blanks whole frames; the seeds of the games decide which."""

    takes_vectors: ClassVar[bool] = True  # see `envs_server.native.build_vector`

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        super().__init__(env)
        self._random = np.random.default_rng()  # until a reset has seeds

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        if seed is not None:
            self._random = np.random.default_rng(seed)
        return super().reset(seed=seed, options=options)

    def observations(self, observations: np.ndarray) -> np.ndarray:
        observations[self._random.random(len(observations)) < _PROBABILITY] = 0
        return observations


flicker = Flicker
