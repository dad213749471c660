"""The counting environment with real actions, of which each instance raises once, in an episode.

The one in its place takes the seed that the learner would have given to the slot's next stream, so
that the oracle knows what it must show.
"""

import itertools
import random
from typing import Any

import numpy as np
from seedrl_plugin.counting import Counting, RealActions

from learner.serving.leases import environment_seed

_STEPS = (5, 150)  # of an instance, until it raises
_MOST_SLOTS, _MOST_EPOCHS = 8, 500
_next_seeds: list[int] = []  # of instances that have raised, and whose successor is not built yet


class Restarting(Counting):
    """See above; `run_seed` is the learner's."""

    def __init__(self, run_seed: int, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._run_seed = run_seed
        self._own_seed = _next_seeds.pop() if _next_seeds else None
        self._left = random.randint(*_STEPS)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """As `Counting` does, with the seed of the stream."""
        if seed is not None and self._own_seed is None:
            self._own_seed = seed
        return super().reset(seed=None if seed is None else self._own_seed)

    def step(self, action: np.int64) -> Any:
        """Counts on, or raises."""
        self._left -= 1
        if self._left < 0:
            _next_seeds.append(self._seed_after())
            raise RuntimeError("no licence")
        return super().step(action)

    def _seed_after(self) -> int:
        for slot, epoch in itertools.product(range(_MOST_SLOTS), range(1, _MOST_EPOCHS)):
            if environment_seed(self._run_seed, slot, epoch) == self._own_seed:
                return environment_seed(self._run_seed, slot, epoch + 1)
        raise AssertionError("a seed that the learner did not give")


def make(bounds: list[tuple[float, float]], **arguments: Any) -> RealActions:
    """One of them."""
    return RealActions(Restarting(**arguments), bounds)
