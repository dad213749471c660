"""The squashed Gaussian: worked numbers, its density by other means, and its extremes."""

import math

import jax
import numpy as np
import pytest

from seedrl.rl.tanh_gaussian import TanhGaussian, log_probability, sample

LOG_PROBABILITY = jax.jit(log_probability)
SLOPE = jax.jit(jax.grad(log_probability, argnums=1))


def policy_of(mean: float, std: float) -> TanhGaussian:
    return TanhGaussian(np.array([mean], np.float32), np.log(np.array([std], np.float32)))


def log_density(u: np.ndarray, mean: float, std: float) -> np.ndarray:
    """ln π(tanh(u)) by the change of variables, in float64: 1 - tanh² as 1 / cosh²."""
    gaussian = -0.5 * ((u - mean) / std) ** 2 - math.log(std) - 0.5 * math.log(2 * math.pi)
    return gaussian + 2 * np.log(np.cosh(u))


def test_the_worked_example() -> None:
    found = float(LOG_PROBABILITY(policy_of(0.5, 0.5), np.ones(1, np.float32)))
    assert found == pytest.approx(0.1417703, abs=1e-6)
    # What it must not be: without the correction, with it added, for an action of twice the size.
    wrong = {"no correction": -0.7257914, "sign": -1.5933531, "scaled": -0.5513769}
    assert all(abs(found - number) > 0.1 for number in wrong.values())


@pytest.mark.parametrize(("mean", "std"), [(0.0, 1.0), (0.5, 0.5), (-1.0, 0.3), (2.0, 0.8)])
def test_the_density_of_actions_integrates_to_one(mean: float, std: float) -> None:
    """Over u, where π(a) da = π(tanh u) / cosh² u du; a float64 sum of float32 densities."""
    u = np.linspace(mean - 9 * std, mean + 9 * std, 4001)
    policy = TanhGaussian(np.float32([[mean]]), np.float32([[math.log(std)]]))
    policy = jax.tree.map(lambda leaf: np.repeat(leaf, len(u), axis=0), policy)
    found = np.asarray(LOG_PROBABILITY(policy, np.float32(u[:, None])), np.float64)
    np.testing.assert_allclose(found, log_density(u, mean, std), rtol=1e-5, atol=2e-5)
    mass = np.trapezoid(np.exp(found) / np.cosh(u) ** 2, u)
    assert mass == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize(("u", "log_slope"), [(8, -14.614), (9, -16.614), (10, -18.614)])
@pytest.mark.parametrize("sign", [1, -1])
def test_far_out_the_correction_is_exact(u: int, log_slope: float, sign: int) -> None:
    # tanh(u) is 1 in float32, and with 1e-6 inside the logarithm the last would be -13.816.
    policy = policy_of(sign * u, 1.0)
    found = float(LOG_PROBABILITY(policy, np.float32([sign * u])))
    assert found == pytest.approx(-0.5 * math.log(2 * math.pi) - log_slope, abs=1e-3)
    slope = SLOPE(policy, np.float32([sign * u]))
    assert float(slope[0]) == pytest.approx(2 * sign, abs=1e-3)  # of -2 (ln 2 - |u|)


def test_samples_carry_their_own_log_probability_summed_over_the_numbers_of_an_action() -> None:
    policy = TanhGaussian(np.float32([[0.3, -0.6]]), np.float32([[-0.5, 0.2]]))
    policy = jax.tree.map(lambda leaf: np.repeat(leaf, 4000, axis=0), policy)
    drawn = jax.jit(sample)(policy, jax.random.key(0))
    u = np.arctanh(np.asarray(drawn.action, np.float64))
    columns = [(0.3, math.exp(-0.5)), (-0.6, math.exp(0.2))]
    expected = [log_density(u[:, d], *parameters) for d, parameters in enumerate(columns)]
    np.testing.assert_allclose(drawn.log_probability, sum(expected), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(u.mean(0), [0.3, -0.6], atol=0.06)
    np.testing.assert_allclose(u.std(0), [math.exp(-0.5), math.exp(0.2)], rtol=0.04)
