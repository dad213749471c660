"""Running moments: by hand, of many batches, on several devices, far from 0, after long runs."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from seedrl.agents.normalization.moments import (
    Moments,
    deviation,
    merged,
    moments_of,
    no_moments,
)

ALONE = functools.partial(jax.tree.map, lambda leaf: leaf)
_moments_alone = jax.jit(functools.partial(moments_of, mean=ALONE))
_merged = jax.jit(merged)


def test_two_batches_by_hand() -> None:
    """1, 2, 3, 6, of which mean and variance are 3 and 3.5; then 10 and 20, and what is ignored."""
    first = _moments_alone(jnp.array([[1.0, 2.0], [3.0, 6.0]]), jnp.ones((2, 2), bool))
    np.testing.assert_allclose(first, (1, 3, 3.5), rtol=1e-6)
    ignored = jnp.array([[True, False], [False, True]])
    second = _moments_alone(jnp.array([[10.0, np.nan], [np.inf, 20.0]]), ignored)
    np.testing.assert_allclose(second, (0.5, 15, 25), rtol=1e-6)
    # A third of all rows is new, 12 away: 2/3 x 3.5 + 1/3 x 25 + 2/9 x 144.
    both = _merged(_merged(no_moments(()), first), second)
    np.testing.assert_allclose(both, (1.5, 7, 128 / 3), rtol=1e-6)
    np.testing.assert_allclose(both[1:], _of(np.array([1, 2, 3, 6, 10, 20.0])), rtol=1e-6)


def _of(rows: np.ndarray) -> tuple[Any, Any]:
    return rows.mean(axis=0), rows.var(axis=0)


def test_before_the_first_row_and_after_a_batch_without_one_nothing_is_scaled() -> None:
    none = _moments_alone(jnp.full((2, 3), np.nan), jnp.zeros((2, 3), bool))
    empty = _merged(no_moments(()), none)
    np.testing.assert_array_equal(empty, (0, 0, 0))
    assert float(deviation(empty)) == 1
    some = Moments(jnp.float32(2), jnp.float32(5), jnp.float32(9))
    np.testing.assert_array_equal(_merged(some, none), some)
    assert float(deviation(some)) == 3


def _batches(seed: int, number: int) -> tuple[np.ndarray, np.ndarray]:
    """`[N, 8, 6, 2]`, drifting, one element far from 0; and which of the rows count."""
    random = np.random.default_rng(seed)
    rows = random.normal(size=(number, 8, 6, 2)) * [3.0, 0.5] + [0.2, 1e4]
    rows += np.linspace(0, 4, number)[:, None, None, None]
    return rows.astype(np.float32), random.random((number, 8, 6)) < 0.8


def test_many_batches_are_as_good_as_all_rows_at_once_and_devices_agree() -> None:
    """On one device and on three; the oracle has float64."""
    rows, counts = _batches(0, 40)
    found = [_merged_over_devices(rows, counts, num_devices) for num_devices in (1, 3)]
    mean, variance = _of(rows.astype(np.float64)[counts])
    for moments in found:
        np.testing.assert_allclose(moments.count, counts.mean() * 40, rtol=1e-6)
        np.testing.assert_allclose(moments.mean, mean, rtol=1e-6)
        np.testing.assert_allclose(moments.variance, variance, rtol=1e-3)


def _merged_over_devices(rows: np.ndarray, counts: np.ndarray, num_devices: int) -> Moments:
    """Each device has its part of the sequences; all must have the same moments, bit for bit."""

    def device(rows: Any, counts: Any) -> Moments:
        mean = functools.partial(jax.lax.pmean, axis_name="device")

        def step(moments: Moments, batch: Any) -> tuple[Moments, None]:
            return merged(moments, moments_of(*batch, mean)), None

        moments, _ = jax.lax.scan(step, no_moments((2,)), (rows, counts))
        return moments

    parts = [np.stack(np.split(x, num_devices, axis=2)) for x in (rows, counts)]
    every = jax.jit(jax.vmap(device, axis_name="device"))(*parts)
    for number in range(num_devices):
        jax.tree.map(lambda leaf, n=number: np.testing.assert_array_equal(leaf[n], leaf[0]), every)
    first: Moments = jax.tree.map(lambda leaf: leaf[0], every)
    return first


def test_a_long_run_loses_no_precision() -> None:
    """100,000 batches, whose mean is ten deviations from 0."""
    random = np.random.default_rng(1)
    means = (10 + 0.1 * random.normal(size=100_000)).astype(np.float32)
    variances = random.uniform(0.8, 1.2, size=100_000).astype(np.float32)
    ones = np.ones_like(means)

    def step(moments: Moments, batch: Moments) -> tuple[Moments, None]:
        return merged(moments, batch), None

    batches = Moments(ones, means, variances)
    found, _ = jax.jit(lambda: jax.lax.scan(step, no_moments(()), batches))()
    expected = means.mean(dtype=np.float64)
    variance = variances.mean(dtype=np.float64) + means.var(dtype=np.float64)
    assert float(found.count) == 100_000
    np.testing.assert_allclose(found.mean, expected, atol=1e-4 * np.sqrt(variance))
    np.testing.assert_allclose(found.variance, variance, rtol=1e-4)


def test_what_never_changes_has_its_own_value_as_mean_and_no_variance() -> None:
    rows = jnp.full((7, 3), 1234.567)
    once = _moments_alone(rows, jnp.ones((7, 3), bool))
    moments = _merged(_merged(no_moments(()), once), once)
    assert (float(moments.mean), float(moments.variance)) == (float(rows[0, 0]), 0)


def test_a_count_that_no_batch_adds_to_forgets_slowly() -> None:
    """Beyond 2^24 batches."""
    before = Moments(jnp.float32(2**24), jnp.float32(0), jnp.float32(1))
    after = _merged(before, Moments(jnp.float32(1), jnp.float32(1), jnp.float32(1)))
    assert float(after.count) == 2**24
    np.testing.assert_allclose(after.mean, 2**-24, rtol=1e-3)
