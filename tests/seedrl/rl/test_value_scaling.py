"""Value rescaling: a table of float64, an oracle of 80 digits, slopes."""

import decimal
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from seedrl.rl.value_scaling import ValueScaling, signed_hyperbolic
from seedrl.types import Array

# Largest error in units in the last place of float32: h, its inverse, and one after the other.
MAX_ERROR, MAX_ERROR_OF_INVERSE, MAX_ERROR_OF_BOTH = 3, 7, 8
EPSILONS = [0.0, 1e-3, 1e-2, 0.3]
LARGEST, LARGEST_SCALED = float(np.float32(1e30)), float(np.float32(1e15))

# x, h(x) and the inverse of h at x, with epsilon 1e-3: the paper's formulas in 80 digits, at the
# float32 nearest to x, rounded to float64. Both functions are odd.
TABLE = [
    (0.0, 0.0, 0.0),
    (1e-6, 5.009998737351597e-07, 1.9960089730164137e-06),
    (1e-5, 5.009987373499886e-06, 1.9960178738470353e-05),
    (1e-4, 5.009874879692679e-05, 0.0001996107335975734),
    (1e-3, 0.0005008750862453224, 0.00199700210087178),
    (1e-2, 0.004997562000661438, 0.020059479801687104),
    (1e-1, 0.04890884888202665, 0.20953906124950028),
    (1e0, 0.41521356237309504, 2.9880567016761477),
    (1e1, 2.3266247903554, 117.43032277955784),
    (1e2, 9.14987562112089, 8546.626307183562),
    (1e3, 31.63858403911275, 382518.4400268371),
    (1e4, 109.00499987500625, 7299281.555164477),
    (1e5, 415.2293471517152, 90488457.81531982),
    (1e6, 1999.000499999875, 968874254.9730453),
]


def logarithmic(lowest: float, highest: float, count: int) -> np.ndarray:
    """Zero, and numbers of both signs, evenly spread over their exponents; `[2 count + 1]`."""
    sizes = np.logspace(np.log10(lowest), np.log10(highest), count)
    return np.concatenate([sizes, [0.0], -sizes]).astype(np.float32)


def in_80_digits(
    function: Callable[[decimal.Decimal, decimal.Decimal], decimal.Decimal],
    values: np.ndarray,
    epsilon: float,
) -> np.ndarray:
    """An odd function of sizes, evaluated where no rounding of float64 reaches; `[...] float64`."""
    with decimal.localcontext(decimal.Context(prec=80)):
        sizes = [decimal.Decimal(float(size)) for size in np.abs(values)]
        found = [float(function(size, decimal.Decimal(epsilon))) for size in sizes]
    return np.copysign(found, values)


def textbook(size: decimal.Decimal, epsilon: decimal.Decimal) -> decimal.Decimal:
    """h as the paper writes it."""
    return (size + 1).sqrt() - 1 + epsilon * size


def textbook_inverse(size: decimal.Decimal, epsilon: decimal.Decimal) -> decimal.Decimal:
    """The inverse of h as the paper writes it, and its limit at epsilon 0."""
    if epsilon == 0:
        return (size + 1) ** 2 - 1
    return (((1 + 4 * epsilon * (size + 1 + epsilon)).sqrt() - 1) / (2 * epsilon)) ** 2 - 1


class Known(NamedTuple):
    """Values and h of them; as many smaller ones and its inverse at them (one shape: one program).

    Attributes:
      values, smaller: float32.
      scaled, unscaled: float64, by the oracle.
    """

    values: np.ndarray
    scaled: np.ndarray
    smaller: np.ndarray
    unscaled: np.ndarray


def known(epsilon: float) -> Known:
    values = np.concatenate([logarithmic(1e-30, LARGEST, 1_000), logarithmic(0.1, 1e3, 1_000)])
    smaller = np.where(np.abs(values) <= LARGEST_SCALED, values, np.float32(0))
    return Known(
        values,
        in_80_digits(textbook, values, epsilon),
        smaller,
        in_80_digits(textbook_inverse, smaller, epsilon),
    )


def error(found: Array, expected: np.ndarray) -> float:
    """The largest difference, in units in the last place of a float32 at the expected value."""
    unit = np.spacing(np.abs(expected).astype(np.float32)).astype(np.float64)
    return float(np.max(np.abs(np.asarray(found, np.float64) - expected) / unit))


def test_the_table_of_float64() -> None:
    scaling = ValueScaling(*map(jax.jit, signed_hyperbolic(1e-3)))
    values, scaled, unscaled = np.concatenate([TABLE, np.negative(TABLE)]).T
    inputs = values.astype(np.float32)
    assert error(scaling.apply(inputs), scaled) <= MAX_ERROR
    assert error(scaling.invert(inputs), unscaled) <= MAX_ERROR_OF_INVERSE
    both = scaling.invert(scaling.apply(inputs))
    assert error(both, inputs.astype(np.float64)) <= MAX_ERROR_OF_BOTH


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_h_and_its_inverse_are_accurate_to_a_few_units_in_the_last_place(epsilon: float) -> None:
    scaling, cases = signed_hyperbolic(epsilon), known(epsilon)
    apply, invert = jax.jit(scaling.apply), jax.jit(scaling.invert)
    assert error(apply(cases.values), cases.scaled) <= MAX_ERROR
    both = jax.jit(lambda x: scaling.invert(scaling.apply(x)))(cases.values)
    assert error(both, cases.values.astype(np.float64)) <= MAX_ERROR_OF_BOTH
    assert error(invert(cases.smaller), cases.unscaled) <= MAX_ERROR_OF_INVERSE


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_slopes_are_those_of_the_paper(epsilon: float) -> None:
    # h'(x) = 1 / (2 sqrt(|x| + 1)) + epsilon, and the slope of the inverse at h(x) is 1 / h'(x).
    scaling = signed_hyperbolic(epsilon)
    values = logarithmic(1e-20, 1e12, 200)
    size = np.abs(values.astype(np.float64))
    expected = 0.5 / np.sqrt(size + 1) + epsilon
    scaled_values = in_80_digits(textbook, values, epsilon).astype(np.float32)
    slopes, slopes_of_inverse = jax.jit(jax.vmap(slopes_of(scaling)))(values, scaled_values)
    np.testing.assert_allclose(slopes, expected, rtol=1e-6)
    np.testing.assert_allclose(slopes_of_inverse, 1 / expected, rtol=2e-6)


def slopes_of(scaling: ValueScaling) -> Any:
    return lambda x, y: (jax.grad(scaling.apply)(x), jax.grad(scaling.invert)(y))
