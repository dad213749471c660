"""The clipped objectives: numbers worked by hand, and which rows have a gradient."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedrl.rl.surrogate import clipped_surrogate, divergence, mean_of, normalized

CAPPED = functools.partial(clipped_surrogate, clip_low=0.2, clip_high=0.3, ratio_cap=2.0)


def column(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32)[:, None]


@functools.partial(jax.jit, static_argnames=("clip_high", "ratio_cap"))
def _surrogate(ratios: Any, advantages: Any, **bounds: float) -> Any:
    def total(log_ratios: Any) -> Any:
        rows = clipped_surrogate(log_ratios, advantages, clip_low=0.2, **bounds)
        return jnp.sum(rows), rows

    return jax.value_and_grad(total, has_aux=True)(jnp.log(ratios))


def test_a_ratio_has_no_gradient_where_going_on_would_gain() -> None:
    ratios, advantages = column(1.3, 1.3, 0.7, 0.7), column(2, -1, 2, -1)
    (_, rows), gradient = _surrogate(ratios, advantages, clip_high=0.2)
    # With bounds of 1 / 1.2 and 1.2 the last were -.8333.
    np.testing.assert_allclose(rows, column(2.4, -1.3, 1.4, -0.8), rtol=1e-6)
    np.testing.assert_allclose(gradient, column(0, -1.3, 1.4, 0), rtol=1e-6)
    assert float(rows.mean()) == pytest.approx(0.425)


def test_a_capped_ratio_has_a_gradient_unless_going_on_would_gain_and_never_a_large_one() -> None:
    ratios = np.array([[0.5, 1.0, 1.25, 1.5, 3.0], [0.5, 0.9, 1.25, 1.5, 3.0]], np.float32)
    advantages = np.array([[2.0], [-1.0]], np.float32) * np.ones((2, 5), np.float32)
    (_, values), gradient = _surrogate(ratios, advantages, clip_high=0.3, ratio_cap=2.0)
    expected = [[1.0, 2.0, 2.5, 2.6, 2.6], [-0.8, -0.9, -1.25, -1.5, -2.0]]
    np.testing.assert_allclose(values, expected, rtol=1e-6)
    # Beyond the cap of 2 a bad action is pushed back by 2, not by 3 and not by 0.
    np.testing.assert_allclose(
        gradient, [[1.0, 2.0, 2.5, 0, 0], [0, -0.9, -1.25, -1.5, -2.0]], rtol=1e-6
    )


def test_an_infinite_ratio_is_capped_too() -> None:
    value, slope = jax.jit(jax.value_and_grad(CAPPED))(jnp.float32(200), jnp.float32(-1))
    assert (float(value), float(slope)) == pytest.approx((-2, -2), rel=1e-5)


def test_the_divergence_is_never_negative() -> None:
    found = np.asarray(jax.jit(divergence)(np.log(column(1.3, 0.9, 1.0))))
    assert float(found[:2].mean()) == pytest.approx(0.0215, abs=5e-5)  # mean of -log: -.0785
    assert float(found.min()) == 0


def test_only_rows_that_count_are_normalized_and_all_of_them_together() -> None:
    advantages = np.array([[1, 2], [1e9, 3], [6, -1e9]], np.float32)
    counts = np.array([[True, True], [False, True], [True, False]])
    jitted_normalized, jitted_mean = jax.jit(normalized), jax.jit(mean_of)
    found = jitted_normalized(advantages, counts)
    expected = [[-1.06904, -0.53452], [0, 0], [1.60357, 0]]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    # Along either axis alone they have other means: (2 and 3.5; 1.5, 3 and 6).
    assert jitted_mean(advantages, counts) == 3
    assert jitted_mean(advantages, np.zeros_like(counts)) == 0
    # Their std is 1.8708.
    floored = jax.jit(functools.partial(normalized, least_std=18.708287))
    np.testing.assert_allclose(floored(advantages, counts), np.array(expected) / 10, atol=1e-6)
    lower = jax.jit(functools.partial(normalized, least_std=1.8))
    np.testing.assert_allclose(lower(advantages, counts), expected, atol=1e-5)
    one = np.array([[False, True], [False, False], [False, False]])
    np.testing.assert_array_equal(jitted_normalized(advantages, one), np.zeros((3, 2)))
