"""Tokens: numbers worked by hand, draws, and which tokens have a gradient."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedrl.rl import tokens
from tests.chi_squared import exceeded_with

SURROGATE = functools.partial(tokens.token_surrogate, clip_low=0.2, clip_high=0.3, ratio_cap=2.0)


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
    found = jax.jit(tokens.log_probs)(logits[0], np.int32(2), 0.5)
    assert float(found) == pytest.approx(math.log(16 / 102), abs=1e-6)


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


@jax.jit
def _surrogate(ratios: Any, advantages: Any) -> Any:
    def total(log_ratios: Any) -> Any:
        found = SURROGATE(log_ratios, advantages)
        return jnp.sum(found), found

    return jax.value_and_grad(total, has_aux=True)(jnp.log(ratios))


def test_a_ratio_has_a_gradient_unless_going_on_would_gain_and_never_a_large_one() -> None:
    ratios = np.array([[0.5, 1.0, 1.25, 1.5, 3.0], [0.5, 0.9, 1.25, 1.5, 3.0]], np.float32)
    advantages = np.array([[2.0], [-1.0]], np.float32) * np.ones((2, 5), np.float32)
    (_, values), gradient = _surrogate(ratios, advantages)
    expected = [[1.0, 2.0, 2.5, 2.6, 2.6], [-0.8, -0.9, -1.25, -1.5, -2.0]]
    np.testing.assert_allclose(values, expected, rtol=1e-6)
    # Beyond the cap of 2 a bad token is pushed back by 2, not by 3 and not by 0.
    np.testing.assert_allclose(
        gradient, [[1.0, 2.0, 2.5, 0, 0], [0, -0.9, -1.25, -1.5, -2.0]], rtol=1e-6
    )


def test_an_infinite_ratio_is_capped_too() -> None:
    value, slope = jax.jit(jax.value_and_grad(SURROGATE))(jnp.float32(200), jnp.float32(-1))
    assert (float(value), float(slope)) == pytest.approx((-2, -2), rel=1e-5)


def test_the_mismatch_is_of_tokens_that_count() -> None:
    log_mu = np.log(np.array([[0.5, 0.5, 0.5]], np.float32))
    log_pi = np.log(np.array([[0.65, 0.45, 0.5]], np.float32))
    log_mu[0, 2] = np.nan
    counts = np.array([[True, True, False]])
    found = jax.jit(tokens.mismatch_kl)(log_pi, log_mu, counts)
    # Ratios of 1.3 and 0.9.
    assert float(found) == pytest.approx((0.3 - math.log(1.3) - 0.1 - math.log(0.9)) / 2, abs=1e-6)
    assert float(jax.jit(tokens.mismatch_kl)(log_pi, log_mu, ~counts & counts)) == 0
