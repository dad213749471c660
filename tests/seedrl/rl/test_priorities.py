"""Priorities and masses: worked examples, masks and failure values."""

import functools
import math
from collections.abc import Callable

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seedrl.rl.priorities import (
    MAX_SAMPLING_WEIGHT,
    MIN_SAMPLING_WEIGHT,
    importance_weights,
    sampling_weight_of,
    sequence_priority,
)
from seedrl.types import Array

_priority, _mass = jax.jit(sequence_priority), jax.jit(sampling_weight_of)


def test_untrained_rows_count_neither_in_maximum_nor_in_mean() -> None:
    errors = np.array([[2.0, 1e9], [1e9, 3.0], [4.0, 1e9]], np.float32)
    is_trained = np.array([[True, False], [False, True], [True, False]])
    expected = [0.9 * 4 + 0.1 * 3, 3.0]
    np.testing.assert_allclose(_priority(errors, is_trained), expected, rtol=1e-6)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    rows=st.lists(st.tuples(st.floats(-1e6, 1e6, width=32), st.booleans()), min_size=6, max_size=6),
    eta=st.floats(0, 1),
)
def test_any_priority_is_the_mixture_of_maximum_and_mean(
    rows: list[tuple[float, bool]], eta: float
) -> None:
    errors = np.array([[error] for error, _ in rows], np.float32)
    is_trained = np.array([[flag] for _, flag in rows])
    sizes = [abs(error) for error, flag in rows if flag]
    expected = eta * max(sizes) + (1 - eta) * math.fsum(sizes) / len(sizes) if sizes else 0.0
    found = _priority(errors, is_trained, eta=eta)
    # What is smaller than any normal float32 may count as 0.
    np.testing.assert_allclose(found, [expected], rtol=1e-6, atol=2e-38)


@pytest.mark.parametrize("exponent", [0.0, 0.9, 1.0])
def test_priorities_that_are_not_finite_or_are_negative_are_refused(exponent: float) -> None:
    refused = np.array([np.nan, np.inf, -np.inf, -1.0], np.float32)
    np.testing.assert_array_equal(_mass(refused, exponent), np.zeros(4))


@pytest.mark.parametrize("exponent", [0.0, 0.9, 1.0])
def test_priority_zero_has_the_smallest_mass_there_is(exponent: float) -> None:
    mass = _mass(np.array([0.0, -0.0, 1e-38], np.float32), exponent)
    np.testing.assert_array_equal(mass[:2], np.full(2, MIN_SAMPLING_WEIGHT, np.float32))
    assert mass[2] >= mass[0]


def test_extreme_priorities_keep_a_positive_mass_with_a_finite_sum() -> None:
    mass = np.asarray(_mass(np.array([1e-37, 3e38], np.float32), 2.0))
    assert mass[0] > 0
    assert mass[1] == np.float32(MAX_SAMPLING_WEIGHT)
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


BATCH = 8
_weights = jax.jit(functools.partial(importance_weights, largest=lambda weight: weight))


def largest(axis_name: str) -> Callable[[Array], Array]:
    return functools.partial(jax.lax.pmax, axis_name=axis_name)


def test_weights_of_a_worked_example() -> None:
    # P = [.1, .2, .4], β = .5: P^-β = [3.1623, 2.2361, 1.5811], over the largest.
    weights = _weights(np.array([0.1, 0.2, 0.4], np.float32), 0.5)
    np.testing.assert_allclose(weights, [1.0, 0.70711, 0.5], rtol=1e-4)


@functools.cache
def weights_over(num_devices: int) -> Callable[[np.ndarray, float], Array]:
    """`importance_weights` of a batch spread over devices, from probabilities within shards."""

    def weights(probability: Array, exponent: float) -> Array:
        return importance_weights(probability, exponent, largest("device"))

    devices = jax.local_devices()[:num_devices]
    return jax.pmap(weights, axis_name="device", in_axes=(0, None), devices=devices)


@pytest.mark.parametrize("num_devices", [1, 4])
@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    exponent=st.floats(0, 1),
    sizes=st.lists(st.integers(1, 50), min_size=4, max_size=4),
    scales=st.lists(st.floats(-6, 6), min_size=4, max_size=4),
    seed=st.integers(0, 2**32 - 1),
)
def test_weights_are_the_closed_form_on_any_shards(
    num_devices: int, exponent: float, sizes: list[int], scales: list[float], seed: int
) -> None:
    """w_i = (N P(i))^-β / max_j (N P(j))^-β, P(i) = p_i / (n Σ of its shard), N of all shards."""
    random = np.random.default_rng(seed)
    shards = [
        10.0**scale * random.exponential(size=size)
        for size, scale in zip(sizes[:num_devices], scales[:num_devices], strict=True)
    ]
    drawn = [random.integers(0, len(shard), BATCH // num_devices) for shard in shards]
    shares = np.array(
        [shard[index] / shard.sum() for shard, index in zip(shards, drawn, strict=True)]
    )
    total = sum(map(len, shards))
    unscaled = (total * shares / num_devices) ** -exponent
    found = weights_over(num_devices)(shares.astype(np.float32), exponent)
    np.testing.assert_allclose(found, unscaled / unscaled.max(), rtol=2e-5)
    assert np.max(found) == 1.0
