"""n-step returns: SEED RL's table in our convention, worked examples and a loop in float64.

SEED RL has one row where an episode ends: its reward and `done` arrive with the first observation
of the next episode. We have two rows there: LAST, then FIRST. SEED RL's target y_t belongs to the
action that led to row t, ours to the row on which the action was taken, so y_t is our G of the row
before. Where SEED RL's sequence ends, it shortens the sums; we get the same from a truncated LAST.
"""

import functools

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seedrl.rl.returns import n_step_targets
from seedrl.types import StepType, TimeStep
from tests.seedrl.rl.episodes import any_timesteps

FIRST, MID, LAST = StepType.FIRST, StepType.MID, StepType.LAST


def column(values: list[float]) -> np.ndarray:
    return np.array(values, np.float32)[:, None]


def timesteps(step_types: list[int], rewards: list[float], discounts: list[float]) -> TimeStep:
    types = np.array(step_types, np.uint8)[:, None]
    return TimeStep(types, column(rewards), column(discounts), ())


def looped_targets(
    step: TimeStep, values: np.ndarray, n_steps: int, gamma: float
) -> list[list[float]]:
    """The definition, row by row: add rewards until n of them or a LAST row, then bootstrap."""
    num_rows, batch_size = values.shape
    targets = []
    for t in range(num_rows - n_steps):
        row = []
        for b in range(batch_size):
            total, weight = 0.0, 1.0
            for k in range(1, n_steps + 1):
                total += weight * float(step.reward[t + k, b])
                weight *= gamma * float(step.discount[t + k, b])
                if k == n_steps or step.step_type[t + k, b] == LAST:
                    total += weight * float(values[t + k, b])
                    break
            row.append(total)
        targets.append(row)
    return targets


# Row 0 is only acted on. Its action's reward is SEED RL's reward 0, which arrives with row 1. The
# last row of SEED RL's sequence is LAST and truncated; n - 1 rows of padding follow it.
SEED_TABLE = [
    pytest.param(
        1,
        timesteps([FIRST, MID, MID, LAST], [9, 1, 2, 3], [1, 1, 1, 1]),
        [900, 100, 200, 300],
        {0: 1 + 0.9 * 100, 1: 2 + 0.9 * 200, 2: 3 + 0.9 * 300},
        id="one step",
    ),
    pytest.param(
        1,
        timesteps([FIRST, MID, LAST, FIRST, LAST], [9, 1, 2, 0, 3], [1, 1, 0, 1, 1]),
        [900, 100, 200, 901, 300],
        {0: 91, 1: 2, 3: 273},
        id="one step, done at 1",
    ),
    pytest.param(
        2,
        timesteps([FIRST, MID, MID, LAST, FIRST], [9, 1, 2, 3, 9], [1, 1, 1, 1, 1]),
        [900, 100, 200, 300, 901],
        {
            0: 1 + 0.9 * 2 + 0.81 * 200,
            1: 2 + 0.9 * 3 + 0.81 * 300,
            2: 3 + 0.9 * 300,
        },
        id="two steps",
    ),
    pytest.param(
        3,
        timesteps(
            [FIRST, MID, MID, MID, LAST, FIRST, MID, MID, LAST, FIRST, MID],
            [9, 1, 2, 3, 4, 0, 5, 6, 7, 9, 9],
            [1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1],
        ),
        [900, 100, 200, 300, 400, 901, 500, 600, 700, 902, 903],
        {
            0: 1 + 0.9 * 2 + 0.81 * 3 + 0.729 * 300,
            1: 2 + 0.9 * 3 + 0.81 * 4,
            2: 3 + 0.9 * 4,
            3: 4,
            5: 5 + 0.9 * 6 + 0.81 * 7 + 0.729 * 700,
            6: 6 + 0.9 * 7 + 0.81 * 700,
            7: 7 + 0.9 * 700,
        },
        id="three steps, done at 3",
    ),
]


@pytest.mark.parametrize(("n_steps", "step", "values", "expected"), SEED_TABLE)
def test_the_table_of_seed_rl(
    n_steps: int, step: TimeStep, values: list[float], expected: dict[int, float]
) -> None:
    found = jitted_targets(step, column(values), n_steps=n_steps, gamma=0.9)
    targets = np.asarray(found)[:, 0]
    assert len(targets) == len(values) - n_steps
    trained = [row for row in range(len(targets)) if step.step_type[row, 0] != LAST]
    assert trained == list(expected)
    np.testing.assert_allclose(targets[trained], list(expected.values()), rtol=1e-6)


@functools.partial(jax.jit, static_argnames="n_steps")
def jitted_targets(step: TimeStep, values: jax.Array, n_steps: int, gamma: float) -> jax.Array:
    return n_step_targets(step, values, n_steps=n_steps, gamma=gamma)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data(), n_steps=st.sampled_from([1, 2, 5]), gamma=st.floats(0, 1))
def test_values_of_any_stream_agree_with_the_sums(
    data: st.DataObject, n_steps: int, gamma: float
) -> None:
    step = data.draw(any_timesteps((8, 2), 1e4))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    values = (1e3 * random.normal(size=(8, 2))).astype(np.float32)
    found = jitted_targets(step, values, n_steps=n_steps, gamma=gamma)
    expected = looped_targets(step, values, n_steps, gamma)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-2)
