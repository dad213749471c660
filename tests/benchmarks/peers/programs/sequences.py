"""The sequences that a replay is measured with, as a command describes them; numpy only.

The command: `capacity` sequences of `length` rows, one starting every `stride` rows; `batch` of
them to be drawn; `inserted` at a time. `steps` and `carry` are the leaves of a row and of what is
stored once a sequence: `{name: [shape, dtype]}`.
"""

from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]


def noise(leaves: dict[str, Any], *leading: int) -> Arrays:
    """Arrays that cannot be compressed: `[*leading, *shape]` of every leaf."""
    random = np.random.default_rng(0)

    def fill(shape: list[int], dtype: str) -> np.ndarray:
        full = (*leading, *shape)
        if np.issubdtype(np.dtype(dtype), np.floating):
            return random.standard_normal(full, np.float32).astype(dtype)
        return random.integers(0, 256 if dtype == "uint8" else 2, full).astype(dtype)

    return {name: fill(shape, dtype) for name, (shape, dtype) in leaves.items()}
