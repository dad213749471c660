"""Streams of made-up episodes, for the equations."""

from typing import Any

import numpy as np
from hypothesis import strategies as st

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


@st.composite
def any_timesteps(draw: st.DrawFn, size: tuple[int, int], largest_reward: float) -> TimeStep:
    """`[T, B]`: any order of step types, each end terminated or truncated, rewards of any size."""
    cells = size[0] * size[1]

    def array(elements: st.SearchStrategy[Any], dtype: str) -> np.ndarray:
        drawn = draw(st.lists(elements, min_size=cells, max_size=cells))
        return np.array(drawn, dtype).reshape(size)

    first, mid, last = StepType.FIRST, StepType.MID, StepType.LAST
    types = array(st.sampled_from([first, mid, mid, last]), "uint8")
    discount = np.where(types == last, array(st.integers(0, 1), "float32"), np.float32(1))
    reward = array(st.floats(-largest_reward, largest_reward, width=32), "float32")
    return TimeStep(types, reward, discount, ())
