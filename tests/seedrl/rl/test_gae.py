"""GAE: numbers worked by hand, the paper's sum, and what must hold for any experience."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedrl.rl.gae import Advantages, gae
from seedrl.types import StepType, TimeStep
from tests.seedrl.rl.episodes import random_timesteps

FIRST, MID, LAST = StepType.FIRST, StepType.MID, StepType.LAST
ROWS, B = 12, 5


_jitted_gae = jax.jit(gae)


def estimated(values: Any, timesteps: TimeStep, gamma: float, gae_lambda: float) -> Advantages:
    """Whatever the numbers are: they need no program of their own."""
    values = np.asarray(values, np.float32)
    return _jitted_gae(values, timesteps, gamma=gamma, gae_lambda=gae_lambda)


def example(last_discount: float) -> tuple[np.ndarray, TimeStep]:
    """Rows 0 to 4, of which row 2 is LAST; what must not be looked at is 1e9."""
    types = np.array([FIRST, MID, LAST, FIRST, MID], np.uint8)
    columns = [1e9, 1, 1, 1e9, 2], [1, 1, last_discount, 1, 1], [1, 2, 4, 3, 1]
    reward, discount, values = (np.array(column, np.float32)[:, None] for column in columns)
    return values, TimeStep(types[:, None], reward, discount, ())


@pytest.mark.parametrize(
    ("last_discount", "advantages"),
    [
        # δ = 1 + 1.8 - 1 = 1.8; 1 + 3.6 - 2 = 2.6; 2 + .9 - 3 = -.1; A_0 = 1.8 + .72 * 2.6. Wrong:
        # 1.08, -1 as a termination; 2.376, .8 with V_t instead of V_{t+1}; 1.8, 0 if the truncated
        # step were left out; 4.14 if v were taken for V in the advantage.
        (1.0, [3.672, 2.6, 0, -0.1]),
        # δ_1 = 1 - 2 = -1; A_0 = 1.8 - .72.
        (0.0, [1.08, -1, 0, -0.1]),
    ],
)
def test_worked_examples(last_discount: float, advantages: list[float]) -> None:
    values, timesteps = example(last_discount)
    found = estimated(values, timesteps, 0.9, 0.8)
    np.testing.assert_allclose(found.advantages[:, 0], advantages, rtol=2e-6)
    np.testing.assert_allclose(found.targets, found.advantages + values[:-1], rtol=1e-6)
    np.testing.assert_array_equal(found.is_trained[:, 0], [True, True, False, True])


def quadratic(values: np.ndarray, timesteps: TimeStep, gamma: float, trace: float) -> np.ndarray:
    """Equation 16 of the paper: the weighted sum of all later errors of the episode, in float64."""
    step_type, reward, discount, _ = timesteps
    advantages = np.zeros((ROWS, B))
    for b in range(B):
        for start in range(ROWS):
            weight = 1.0
            for t in range(start, ROWS):
                if step_type[t, b] == LAST:
                    break  # nothing that follows belongs to the episode of `start`
                ahead = gamma * float(discount[t + 1, b])
                error = float(reward[t + 1, b]) + ahead * float(values[t + 1, b])
                advantages[start, b] += weight * (error - float(values[t, b]))
                weight *= ahead * trace
    return advantages


def random_rows(seed: int) -> tuple[np.ndarray, TimeStep]:
    timesteps = random_timesteps(seed, ROWS + 1, B)
    values = 3 * np.random.default_rng(seed).normal(size=(ROWS + 1, B)).astype(np.float32)
    return values, timesteps


@pytest.mark.parametrize(("gamma", "trace"), [(0.97, 0.8), (1.0, 1.0), (0.9, 0.0)])
def test_advantages_are_the_sums_of_the_paper(gamma: float, trace: float) -> None:
    for seed in range(20):
        values, timesteps = random_rows(seed)
        found = estimated(values, timesteps, gamma, trace)
        expected = quadratic(values, timesteps, gamma, trace)
        np.testing.assert_allclose(found.advantages, expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(found.targets, expected + values[:-1], rtol=1e-5, atol=1e-5)


def test_no_gradient_flows() -> None:
    values, timesteps = random_rows(101)

    def total(values: Any) -> Any:
        found = gae(values, timesteps, gamma=0.9, gae_lambda=0.8)
        return jnp.sum(found.targets) + jnp.sum(found.advantages)

    np.testing.assert_array_equal(jax.jit(jax.grad(total))(values), np.zeros_like(values))
