"""Parameters for tests to which any numbers will do."""

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np


def random_parameters(init: Callable[[Any], Any], seed: int = 0) -> Any:
    """A tree like that of `init(key)`: normal matrices that keep the size of what they multiply.

    Biases are above 0, so that most units are alive. `init` is traced and not compiled, which takes
    a third of a second for each recurrent network.
    """
    random = np.random.default_rng(seed)

    def drawn(leaf: jax.ShapeDtypeStruct) -> np.ndarray:
        if leaf.ndim < 2:
            return random.uniform(0, 0.5, leaf.shape).astype(leaf.dtype)
        return (random.normal(size=leaf.shape) / math.sqrt(leaf.shape[0])).astype(leaf.dtype)

    return jax.tree.map(drawn, jax.eval_shape(init, jax.random.key(0)))
