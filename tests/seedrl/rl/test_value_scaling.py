"""Value rescaling: literal values, a float64 oracle and precision."""

import jax
import numpy as np
import pytest

from seedrl.rl.value_scaling import identity, signed_hyperbolic

SIZES = np.concatenate([np.logspace(-6, 6, 400), [0.0]])
VALUES = np.concatenate([SIZES, -SIZES]).astype(np.float32)


def textbook_scaling(x: np.ndarray, epsilon: float) -> np.ndarray:
    """h as the paper prints it, in float64."""
    x = x.astype(np.float64)
    return np.sign(x) * (np.sqrt(np.abs(x) + 1) - 1) + epsilon * x


def bisected_inverse(y: np.ndarray, epsilon: float) -> np.ndarray:
    """The inverse of h found without its formula, in float64."""
    size = np.abs(y.astype(np.float64))
    low, high = np.zeros_like(size), (size + 1) ** 2
    for _ in range(200):
        middle = (low + high) / 2
        too_small = textbook_scaling(middle, epsilon) < size
        low, high = np.where(too_small, middle, low), np.where(too_small, high, middle)
    return np.sign(y) * (low + high) / 2


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


@pytest.mark.parametrize("epsilon", [0.0, 1e-3, 1e-2])
def test_h_and_its_inverse_are_good_to_float32_precision(epsilon: float) -> None:
    scaling = signed_hyperbolic(epsilon)
    apply, invert = jax.jit(scaling.apply), jax.jit(scaling.invert)
    assert relative_error(apply(VALUES), textbook_scaling(VALUES, epsilon)) <= 2.5e-7
    assert relative_error(invert(VALUES), bisected_inverse(VALUES, epsilon)) <= 4e-7


def test_the_inverse_undoes_h() -> None:
    scaling = signed_hyperbolic(1e-3)
    round_trip = jax.jit(lambda x: scaling.invert(scaling.apply(x)))(VALUES)
    assert relative_error(round_trip, VALUES.astype(np.float64)) <= 6e-7


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
