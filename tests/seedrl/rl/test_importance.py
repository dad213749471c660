"""Importance weights: worked examples, failure values, and the closed form over shards."""

import functools
from collections.abc import Callable

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seedrl.rl.importance import importance_weights, shard_probability
from seedrl.types import Array

BATCH = 8
_weights = jax.jit(importance_weights, static_argnums=2)


def largest(axis_name: str) -> Callable[[Array], Array]:
    return functools.partial(jax.lax.pmax, axis_name=axis_name)


def test_weights_of_a_worked_example() -> None:
    # P = [.1, .2, .4], β = .5: P^-β = [3.1623, 2.2361, 1.5811], over the largest.
    weights = _weights(np.array([0.1, 0.2, 0.4], np.float32), 0.5)
    np.testing.assert_allclose(weights, [1.0, 0.70711, 0.5], rtol=1e-4)


def test_exponent_zero_weighs_everything_alike() -> None:
    weights = _weights(np.array([0.1, 0.9], np.float32), 0.0)
    np.testing.assert_array_equal(weights, [1.0, 1.0])


def test_exponent_one_cancels_the_probability() -> None:
    probability = np.array([1e-30, 1e-3, 0.5], np.float32)
    weights = _weights(probability, 1.0)
    np.testing.assert_allclose(weights * probability, np.full(3, 1e-30), rtol=1e-4)


def test_draws_of_an_empty_shard_weigh_nothing() -> None:
    weights = _weights(np.array([0.0, 0.5], np.float32), 0.6)
    np.testing.assert_array_equal(weights, [0.0, 1.0])
    np.testing.assert_array_equal(_weights(np.zeros(2, np.float32), 0.6), [0.0, 0.0])


def test_the_maximum_is_taken_over_all_shards() -> None:
    probability = np.array([[0.1, 0.2], [0.4, 0.8]], np.float32)
    sharded = jax.jit(
        jax.vmap(lambda p: importance_weights(p, 1.0, largest("core")), axis_name="core")
    )(probability)
    whole = _weights(probability.reshape(-1), 1.0)
    np.testing.assert_allclose(sharded.reshape(-1), whole, rtol=1e-6)
    np.testing.assert_allclose(whole, [1.0, 0.5, 0.25, 0.125], rtol=1e-6)


def test_the_probability_really_drawn_divides_by_the_number_of_shards() -> None:
    # Masses [1, 3] and [4, 12]: each shard gives one of two draws, so 1 and 4 are drawn alike.
    poor = shard_probability(np.array([0.25, 0.75], np.float32), 2)
    rich = shard_probability(np.array([4 / 16, 12 / 16], np.float32), 2)
    np.testing.assert_allclose(poor, [0.125, 0.375])
    np.testing.assert_allclose(rich, poor)


@functools.cache
def weights_over(num_devices: int) -> Callable[[np.ndarray, float], Array]:
    """`importance_weights` of a batch spread over devices, from probabilities within shards."""

    def weights(probability_in_shard: Array, exponent: float) -> Array:
        probability = shard_probability(probability_in_shard, num_devices)
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
