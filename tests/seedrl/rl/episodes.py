"""Streams of made-up episodes, for the equations."""

import numpy as np

from seedrl.types import StepType, TimeStep


def random_timesteps(seed: int, num_rows: int, batch: int) -> TimeStep:
    """`[T, B]`: episodes of one to some steps, terminated or truncated, that begin anywhere."""
    random = np.random.default_rng(seed)
    types = np.full((num_rows, batch), StepType.MID, np.uint8)
    for stream in range(batch):
        row = int(random.integers(0, 4))
        while row < num_rows:
            types[row : row + 2, stream] = [StepType.LAST, StepType.FIRST][: num_rows - row]
            row += int(random.integers(2, 7))
    is_last = types == StepType.LAST
    discount = np.where(is_last, random.integers(0, 2, types.shape), 1).astype(np.float32)
    reward = random.normal(size=types.shape).astype(np.float32)
    return TimeStep(types, reward, discount, ())
