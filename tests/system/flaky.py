"""Environments that fail and dawdle now and then."""

import math
import random
import time
from typing import Any

import gymnasium


class Flaky(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Raises, gives NaN as reward and takes long, each as often as its instance draws."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self._fails, self._waits = random.choice((0, 0.001, 0.01, 0.05)), random.choice((0, 0.02))

    def reset(self, **given: Any) -> Any:
        """See Env."""
        self._happen()
        return self.env.reset(**given)

    def step(self, action: Any) -> Any:
        """See Env."""
        self._happen()
        observation, reward, *others = self.env.step(action)
        return observation, math.nan if random.random() < self._fails else reward, *others

    def _happen(self) -> None:
        if random.random() < self._waits:
            time.sleep(random.choice((0.005, 0.05, 0.4)))
        if random.random() < self._fails:
            raise RuntimeError("no licence")
