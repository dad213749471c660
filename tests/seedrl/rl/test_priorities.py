"""Priorities and masses: worked examples, masks and failure values."""

import math

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seedrl.rl.priorities import MAX_MASS, MIN_MASS, sequence_priority, stored_mass

_priority, _mass = jax.jit(sequence_priority), jax.jit(stored_mass)


def test_a_worked_example() -> None:
    errors = np.array([[1.0], [-4.0], [1.0]], np.float32)
    priority = _priority(errors, np.ones((3, 1), bool))
    np.testing.assert_allclose(priority, [0.9 * 4 + 0.1 * 2], rtol=1e-6)


@pytest.mark.parametrize(("mix", "expected"), [(0.0, 2.0), (0.5, 3.0), (1.0, 4.0)])
def test_the_mix_goes_from_mean_to_maximum(mix: float, expected: float) -> None:
    errors = np.array([[1.0], [-4.0], [1.0]], np.float32)
    np.testing.assert_allclose(
        _priority(errors, np.ones((3, 1), bool), mix=mix), [expected], rtol=1e-6
    )


def test_untrained_rows_count_neither_in_maximum_nor_in_mean() -> None:
    errors = np.array([[2.0, 1e9], [1e9, 3.0], [4.0, 1e9]], np.float32)
    is_trained = np.array([[True, False], [False, True], [True, False]])
    expected = [0.9 * 4 + 0.1 * 3, 3.0]
    np.testing.assert_allclose(_priority(errors, is_trained), expected, rtol=1e-6)


def test_a_sequence_without_a_trained_row_has_priority_zero() -> None:
    priority = _priority(np.full((2, 1), 1e9, np.float32), np.zeros((2, 1), bool))
    np.testing.assert_array_equal(priority, [0.0])


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    rows=st.lists(st.tuples(st.floats(-1e6, 1e6, width=32), st.booleans()), min_size=6, max_size=6),
    mix=st.floats(0, 1),
)
def test_any_priority_is_the_mixture_of_maximum_and_mean(
    rows: list[tuple[float, bool]], mix: float
) -> None:
    errors = np.array([[error] for error, _ in rows], np.float32)
    is_trained = np.array([[flag] for _, flag in rows])
    sizes = [abs(error) for error, flag in rows if flag]
    expected = mix * max(sizes) + (1 - mix) * math.fsum(sizes) / len(sizes) if sizes else 0.0
    found = _priority(errors, is_trained, mix=mix)
    # What is smaller than any normal float32 may count as 0.
    np.testing.assert_allclose(found, [expected], rtol=1e-6, atol=2e-38)


def test_mass_is_the_priority_to_the_exponent() -> None:
    mass = _mass(np.array([1.0, 4.0, 0.25], np.float32), 0.5)
    np.testing.assert_allclose(mass, [1.0, 2.0, 0.5], rtol=1e-6)


def test_exponent_zero_samples_uniformly() -> None:
    mass = _mass(np.array([1e-3, 1.0, 1e3], np.float32), 0.0)
    np.testing.assert_array_equal(mass, [1.0, 1.0, 1.0])


@pytest.mark.parametrize("exponent", [0.0, 0.9, 1.0])
def test_priorities_that_are_not_finite_or_are_negative_are_refused(exponent: float) -> None:
    refused = np.array([np.nan, np.inf, -np.inf, -1.0], np.float32)
    np.testing.assert_array_equal(_mass(refused, exponent), np.zeros(4))


@pytest.mark.parametrize("exponent", [0.0, 0.9, 1.0])
def test_priority_zero_has_the_smallest_mass_there_is(exponent: float) -> None:
    mass = _mass(np.array([0.0, -0.0, 1e-38], np.float32), exponent)
    np.testing.assert_array_equal(mass[:2], np.full(2, MIN_MASS, np.float32))
    assert mass[2] >= mass[0]


def test_extreme_priorities_keep_a_positive_mass_with_a_finite_sum() -> None:
    mass = np.asarray(_mass(np.array([1e-37, 3e38], np.float32), 2.0))
    assert mass[0] > 0
    assert mass[1] == np.float32(MAX_MASS)
    assert np.isfinite(np.float32(mass[1] * 2.0**20))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    priority=st.floats(2.0**-60, 2.0**60, width=32),
    exponent=st.floats(0, 2),
)
def test_any_mass_is_the_power(priority: float, exponent: float) -> None:
    expected = min(max(priority**exponent, 1e-30), 1e30)
    mass = _mass(np.array([priority], np.float32), exponent)
    np.testing.assert_allclose(mass, [expected], rtol=2e-5)
