"""Tokens: numbers worked by hand, and draws."""

import functools
import math
from typing import Any

import jax
import numpy as np
import pytest

from seedrl.rl import tokens
from tests.chi_squared import exceeded_with


def test_the_log_probability_is_of_the_distribution_that_was_sampled() -> None:
    logits = np.log(np.array([[1, 2, 4, 9]], np.float32))
    num_draws = 20_000
    many = np.broadcast_to(logits, (num_draws, 4))
    ids, log_mu = jax.jit(tokens.sample)(jax.random.key(0), many, 0.5)
    # Squares of what the temperature 1 has: 1, 4, 16, 81 of 102.
    expected = np.array([1, 4, 16, 81]) / 102
    np.testing.assert_allclose(log_mu, np.log(expected)[ids], atol=1e-6)
    counts = np.bincount(ids, minlength=4)
    statistic = float(np.sum((counts - num_draws * expected) ** 2 / (num_draws * expected)))
    assert statistic < exceeded_with(1e-3, 3)


def test_each_row_has_its_temperature_and_of_zero_the_likeliest() -> None:
    logits = np.array([[0, 3, 2.9], [0, 3, 2.9], [0, 3, 2.9]], np.float32)
    temperature = np.array([0, 1, 1e6], np.float32)
    drawn = set()
    for seed in range(40):
        ids, log_mu = jax.jit(tokens.sample)(jax.random.key(seed), logits, temperature)
        assert (ids[0], log_mu[0]) == (1, 0)
        assert float(log_mu[2]) == pytest.approx(-math.log(3), abs=1e-5)
        drawn |= {(1, int(ids[1])), (2, int(ids[2]))}
    assert drawn >= {(1, 1), (1, 2), (2, 0), (2, 1), (2, 2)}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("dr_grpo", [-0.25, -0.25, -0.25, 0.75]),
        ("rloo", [-1 / 3, -1 / 3, -1 / 3, 1]),
        # The std is sqrt(3) / 4.
        ("grpo", [-1 / math.sqrt(3)] * 3 + [math.sqrt(3)]),
    ],
)
def test_advantages_compare_with_the_group(kind: Any, expected: list[float]) -> None:
    returns = np.array([[0, 0, 0, 1], [5, 5, 5, 5], [0.1, 0.1, 0.1, 0.1]], np.float32)
    returns[2, 1] = np.nextafter(returns[2, 0], 1)  # not a difference, but a rounding
    found = jax.jit(tokens.group_advantages, static_argnums=1)(returns, kind)
    np.testing.assert_allclose(found[0], expected, rtol=1e-6)
    np.testing.assert_array_equal(found[1:], np.zeros((2, 4)))
    np.testing.assert_array_equal(tokens.has_spread(returns), [True, False, False])
    returns[1, 0] = np.nan
    assert np.isnan(tokens.group_advantages(returns, kind)[1]).all()


def test_gae_goes_from_token_to_token_of_the_policy() -> None:
    values = np.array([[9, 0.5, 7, 0.25, 1, 8], [1, 2, 3, 4, 5, 6]], np.float32)
    is_policy = np.array([[0, 1, 0, 1, 1, 0], [0, 0, 0, 0, 0, 0]], bool)
    found = functools.partial(tokens.token_gae, gae_lambda=0.5)
    advantages, targets = jax.jit(found)(values, is_policy, np.array([3, 5], np.float32))
    # Backwards: 3 - 1; 1 - 0.25 + 0.5 x 2; 0.25 - 0.5 + 0.5 x 1.75.
    np.testing.assert_allclose(advantages, [[0, 0.625, 0, 1.75, 2, 0], [0] * 6])
    np.testing.assert_allclose(targets, [[0, 1.125, 0, 2, 3, 0], [0] * 6])
