"""A Gaussian policy: densities by another library, numbers by hand, and draws."""

import math
from statistics import NormalDist
from typing import Any

import jax
import numpy as np

from seedrl.rl.gaussian import drawn, entropy, log_probability

LOG_PROBABILITY = jax.jit(log_probability)
RANDOM = np.random.default_rng(3)
MEAN, LOG_STD, ACTION = RANDOM.normal(size=(3, 4, 5, 2)).astype(np.float32)


@np.vectorize
def log_density(mean: Any, log_std: Any, action: Any) -> Any:
    """Of one number, by the standard library in float64."""
    return math.log(NormalDist(float(mean), math.exp(log_std)).pdf(float(action)))


def test_densities_are_those_of_independent_gaussians() -> None:
    found = LOG_PROBABILITY(MEAN, LOG_STD, ACTION)
    expected = log_density(MEAN, LOG_STD, ACTION).sum(axis=-1)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    # Worked by hand: mu .5, sigma .5, a 1: -.5 + ln 2 - .9189385.
    half = np.full((1, 1), 0.5, np.float32)
    one = LOG_PROBABILITY(half, np.log(half), np.ones_like(half))
    np.testing.assert_allclose(one, [-0.7257914], rtol=1e-6)


def test_entropies_are_those_of_independent_gaussians() -> None:
    # The integral of -p ln p, 12 standard deviations to either side.
    at = np.linspace(-12, 12, 4001)
    log_p = log_density(0, LOG_STD[..., None], at * np.exp(LOG_STD[..., None].astype(np.float64)))
    expected = np.trapezoid(-np.exp(log_p) * log_p, at) * np.exp(LOG_STD.astype(np.float64))
    np.testing.assert_allclose(jax.jit(entropy)(LOG_STD), expected.sum(axis=-1), rtol=1e-5)


def test_exploration_of_one_draws_and_of_none_takes_the_mean() -> None:
    mean = np.repeat(np.array([[2.0, -1.0]], np.float32), 4000, axis=0)
    log_std = np.log(np.repeat(np.array([[0.5, 3.0]], np.float32), 4000, axis=0))
    exploration = np.repeat(np.array([1.0, 0.0], np.float32), 2000)
    actions = np.asarray(jax.jit(drawn)(mean, log_std, exploration, jax.random.key(0)))
    np.testing.assert_array_equal(actions[2000:], mean[2000:])
    np.testing.assert_allclose(actions[:2000].mean(axis=0), mean[0], atol=0.25)
    np.testing.assert_allclose(actions[:2000].std(axis=0), [0.5, 3.0], rtol=0.06)
    assert len(np.unique(actions[:2000, 0])) == 2000
