"""Value rescaling: literal values, a float64 oracle and precision."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seedrl.rl.value_scaling import ValueScaling, identity, signed_hyperbolic

# Relative to a value computed in float64; a float32 is spaced by 1.2e-7.
PRECISION = 2e-7
EPSILONS = [0.0, 1e-3, 1e-2, 0.3]
LARGEST, LARGEST_SCALED = float(np.float32(1e30)), float(np.float32(1e15))


def logarithmic(lowest: float, highest: float, count: int) -> np.ndarray:
    """Zero, and numbers of both signs, evenly spread over their exponents; `[2 count + 1]`."""
    sizes = np.logspace(np.log10(lowest), np.log10(highest), count)
    return np.concatenate([sizes, [0.0], -sizes]).astype(np.float32)


VALUES = logarithmic(1e-6, 1e6, 400)


def scaled(x: np.ndarray, epsilon: float) -> np.ndarray:
    """h of the paper in float64; the root's difference by its series where it would cancel."""
    size = np.abs(x.astype(np.float64))
    root = np.where(size < 1e-4, size / 2 - size**2 / 8 + size**3 / 16, np.sqrt(size + 1) - 1)
    return np.sign(x) * (root + epsilon * size)


def bisected_inverse(y: np.ndarray, epsilon: float) -> np.ndarray:
    """The inverse of h found without its formula, in float64, by halving exponents, then values."""
    size = np.abs(y.astype(np.float64))
    low, high = np.full_like(size, 1e-40), np.full_like(size, 1e40)
    for step in range(120):
        middle = np.sqrt(low * high) if step < 30 else (low + high) / 2
        too_small = scaled(middle, epsilon) < size
        low, high = np.where(too_small, middle, low), np.where(too_small, high, middle)
    return np.where(y == 0, 0.0, np.sign(y) * (low + high) / 2)


def relative_error(found: jax.Array, expected: np.ndarray) -> float:
    size = np.maximum(np.abs(expected), 1e-30)
    return float(np.max(np.abs(np.asarray(found, np.float64) - expected) / size))


def test_the_worked_values_of_h() -> None:
    scaling = signed_hyperbolic(1e-3)
    values = np.array([0, 3, -3, 8, 99], np.float32)
    # √4 - 1 = 1, √9 - 1 = 2, √100 - 1 = 9, and a thousandth of the value on top.
    expected = [0, 1.003, -1.003, 2.008, 9.099]
    np.testing.assert_allclose(scaling.apply(values), expected, rtol=2e-7)
    np.testing.assert_allclose(scaling.invert(np.array(expected)), values, rtol=5e-7)
    assert scaling.apply(np.float32(1000)) > 10


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("compiled", [jax.jit, lambda function: function], ids=["jit", "eager"])
def test_h_and_its_inverse_are_good_to_float32_precision(epsilon: float, compiled: Any) -> None:
    scaling = signed_hyperbolic(epsilon)
    values = np.concatenate([logarithmic(1e-30, LARGEST, 60_000), logarithmic(0.1, 1e3, 60_000)])
    apply, invert = compiled(scaling.apply), compiled(scaling.invert)
    assert relative_error(apply(values), scaled(values, epsilon)) <= PRECISION
    undone = compiled(lambda x: scaling.invert(scaling.apply(x)))(values)
    assert relative_error(undone, values.astype(np.float64)) <= PRECISION
    values = values[np.abs(values) <= LARGEST_SCALED]
    assert relative_error(invert(values), bisected_inverse(values, epsilon)) <= PRECISION


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    value=st.floats(-LARGEST, LARGEST, width=32, allow_subnormal=False),
    scale=st.floats(-LARGEST_SCALED, LARGEST_SCALED, width=32, allow_subnormal=False),
    epsilon=st.sampled_from(EPSILONS),
)
def test_any_value_is_scaled_to_float32_precision(
    value: float, scale: float, epsilon: float
) -> None:
    apply, invert = jitted(epsilon)
    one, other = np.array([value], np.float32), np.array([scale], np.float32)
    assert relative_error(apply(one), scaled(one, epsilon)) <= PRECISION
    assert relative_error(invert(other), bisected_inverse(other, epsilon)) <= PRECISION


@functools.cache
def jitted(epsilon: float) -> ValueScaling:
    return ValueScaling(*map(jax.jit, signed_hyperbolic(epsilon)))


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_slopes_are_those_of_the_paper(epsilon: float) -> None:
    # h'(x) = 1 / (2 sqrt(|x| + 1)) + epsilon, and the slope of the inverse at h(x) is 1 / h'(x).
    scaling = signed_hyperbolic(epsilon)
    values = logarithmic(1e-20, 1e12, 200)
    size = np.abs(values.astype(np.float64))
    expected = 0.5 / np.sqrt(size + 1) + epsilon
    slopes = jax.jit(jax.vmap(jax.grad(scaling.apply)))(values)
    np.testing.assert_allclose(slopes, expected, rtol=1e-6)
    scaled_values = jnp.asarray(scaled(values, epsilon), jnp.float32)
    slopes = jax.jit(jax.vmap(jax.grad(scaling.invert)))(scaled_values)
    np.testing.assert_allclose(slopes, 1 / expected, rtol=2e-6)


def test_slopes_at_zero_are_those_of_the_smooth_function() -> None:
    # h'(0) = 1/2 + ε. A sign(x) in the formula would make it 0 there.
    assert jax.grad(signed_hyperbolic(1e-3).apply)(0.0) == pytest.approx(0.501)


def test_identity_changes_nothing() -> None:
    scaling = identity()
    assert scaling.apply(VALUES) is VALUES
    assert scaling.invert(VALUES) is VALUES


def test_a_negative_epsilon_is_refused() -> None:
    with pytest.raises(ValueError, match=r"expected a number >= 0, got -0\.1"):
        signed_hyperbolic(-0.1)
