"""V-trace: numbers worked by hand, the paper's sum, and what must hold for any experience."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedrl.rl.vtrace import VTrace, vtrace
from seedrl.types import StepType, TimeStep
from tests.seedrl.rl.episodes import random_timesteps

FIRST, MID, LAST = StepType.FIRST, StepType.MID, StepType.LAST
GAMMA = 0.9


class Rows(NamedTuple):
    """U + 1 rows of B streams, `[U + 1, B]` each, and log ratios `[U, B]`."""

    log_ratios: np.ndarray
    values: np.ndarray
    timesteps: TimeStep


@jax.jit
def _compiled(rows: Rows, settings: dict[str, float]) -> VTrace:
    return vtrace(*rows, **settings)


PAPER = {"gamma": GAMMA, "vtrace_lambda": 1.0, "rho_bar": 1.0, "c_bar": 1.0, "pg_rho_bar": 1.0}


def corrected(rows: Rows, **settings: float) -> VTrace:
    """Under settings that are not the paper's."""
    return _compiled(rows, PAPER | settings)


def rows_of(
    types: Any, rewards: Any, discounts: Any, values: Any, ratios: Any, unseen: float = 1e9
) -> Rows:
    """One stream; what must not be looked at is `unseen`."""
    columns = [np.array(x, np.float32)[:, None] for x in (rewards, discounts, values)]
    reward, discount, value = columns
    step_type = np.array(types, np.uint8)[:, None]
    reward = np.where((np.arange(len(reward))[:, None] == 0) | (step_type == FIRST), unseen, reward)
    log_ratios = np.log(np.array(ratios, np.float32))[:, None]
    return Rows(log_ratios, value, TimeStep(step_type, reward, discount, ()))


def example(last_discount: float) -> Rows:
    """Rows 0 to 4, of which row 2 is LAST; its ratio must not count."""
    return rows_of(
        [FIRST, MID, LAST, FIRST, MID],
        [0, 1, 2, 0, -1],
        [1, 1, last_discount, 1, 1],
        [1, 1.5, 9, 0.5, 1.5],
        [1.5, 0.5, 3, 2],
    )


TERMINATED, TRUNCATED = example(0), example(1)


@pytest.mark.parametrize(
    ("rows", "settings", "corrections", "advantages"),
    [
        (TERMINATED, {}, [1.575, 0.25, 0, -0.15], [1.575, 0.25, 0, -0.15]),
        # λ mixes v and V in the advantage, too: not 1.575, which takes v whatever λ is.
        (TERMINATED, {"vtrace_lambda": 0.5}, [1.4625, 0.25, 0, -0.15], [1.4625, 0.25, 0, -0.15]),
        (TERMINATED, {"rho_bar": 2.0}, [2.25, 0.25, 0, -0.3], [1.575, 0.25, 0, -0.15]),
        # c̄ 1.5 in row 0: 1.35 + .9 * 1.5 * .25.
        (TERMINATED, {"c_bar": 1.5}, [1.6875, 0.25, 0, -0.15], [1.575, 0.25, 0, -0.15]),
        (TERMINATED, {"pg_rho_bar": 1.5}, [1.575, 0.25, 0, -0.15], [2.3625, 0.25, 0, -0.225]),
        # Truncated, not terminated: 1.575 and .25 would be a termination's; with the LAST row
        # unmasked it were 1.702575, .39175, -8.685; with a mask that lets traces pass 5.15925 and
        # 4.2325, of which -.0675 has leaked from the next episode.
        (TRUNCATED, {}, [5.22, 4.3, 0, -0.15], [5.22, 4.3, 0, -0.15]),
    ],
)
def test_worked_examples(
    rows: Rows, settings: dict[str, Any], corrections: Any, advantages: Any
) -> None:
    found = corrected(rows, **settings)
    np.testing.assert_allclose((found.targets - rows.values[:-1])[:, 0], corrections, rtol=2e-6)
    np.testing.assert_allclose(found.advantages[:, 0], advantages, rtol=2e-6)
    np.testing.assert_array_equal(found.is_trained[:, 0], [True, True, False, True])


def random_rows(seed: int, num_rows: int = 12, batch: int = 5) -> Rows:
    """Streams of episodes of one to some steps, terminated or truncated, that begin anywhere."""
    timesteps = random_timesteps(seed, num_rows + 1, batch)
    random = np.random.default_rng(seed)
    log_ratios = random.normal(size=(num_rows, batch)).astype(np.float32)
    values = 3 * random.normal(size=(num_rows + 1, batch)).astype(np.float32)
    return Rows(log_ratios, values, timesteps)


def quadratic(rows: Rows, settings: dict[str, float]) -> tuple[np.ndarray, np.ndarray]:
    """Targets and advantages as the paper's sum over all later rows, in float64."""
    log_ratios, values = rows.log_ratios.astype(np.float64), rows.values.astype(np.float64)
    step_type, reward, discount, _ = rows.timesteps
    num_rows, batch = log_ratios.shape
    gamma, mix = settings["gamma"], settings["vtrace_lambda"]
    ratios = np.exp(log_ratios)
    targets, advantages = values[:-1].copy(), np.zeros((num_rows, batch))
    for b in range(batch):
        v = values[:, b].copy()
        for start in range(num_rows):
            weight = 1.0
            for t in range(start, num_rows):
                if step_type[t, b] == LAST:
                    break  # nothing that follows belongs to the episode of `start`
                ahead = gamma * float(discount[t + 1, b])
                error = reward[t + 1, b] + ahead * values[t + 1, b] - values[t, b]
                v[start] += weight * min(settings["rho_bar"], ratios[t, b]) * error
                weight *= ahead * mix * min(settings["c_bar"], ratios[t, b])
        for t in range(num_rows):
            if step_type[t, b] == LAST:
                continue
            mixed = mix * v[t + 1] + (1 - mix) * values[t + 1, b]
            q = reward[t + 1, b] + gamma * float(discount[t + 1, b]) * mixed
            advantages[t, b] = min(settings["pg_rho_bar"], ratios[t, b]) * (q - values[t, b])
        targets[:, b] = v[:-1]
    return targets, advantages


@pytest.mark.parametrize(
    "settings",
    [
        {"gamma": 0.97, "vtrace_lambda": 0.8, "rho_bar": 1.3, "c_bar": 0.9, "pg_rho_bar": 1.1},
        PAPER | {"gamma": 1.0},
        PAPER | {"vtrace_lambda": 0.0},
    ],
)
def test_targets_and_advantages_are_the_sums_of_the_paper(settings: dict[str, float]) -> None:
    for seed in range(20):
        rows = random_rows(seed)
        found = corrected(rows, **settings)
        targets, advantages = quadratic(rows, settings)
        np.testing.assert_allclose(found.targets, targets, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(found.advantages, advantages, rtol=1e-5, atol=1e-5)


def test_nothing_finite_makes_it_overflow_and_no_gradient_flows() -> None:
    rows = random_rows(102)
    huge = rows._replace(log_ratios=np.full((12, 5), 500.0, np.float32))
    assert all(np.isfinite(leaf).all() for leaf in corrected(huge)[:2])

    def total(log_ratios: Any, values: Any) -> Any:
        found = vtrace(log_ratios, values, rows.timesteps, **PAPER)
        return jnp.sum(found.targets) + jnp.sum(found.advantages)

    for gradient in jax.jit(jax.grad(total, (0, 1)))(rows.log_ratios, rows.values):
        np.testing.assert_array_equal(gradient, np.zeros_like(gradient))
