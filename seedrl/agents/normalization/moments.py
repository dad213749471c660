"""Running mean and variance of rows that arrive in batches, on all devices at once."""

from collections.abc import Callable
from typing import NamedTuple

import chex
import jax.numpy as jnp

from seedrl.types import Array, Tree

# What is added to a variance before its root is taken, as in the VecNormalize of Stable-Baselines3.
EPSILON = 1e-8


class Moments(NamedTuple):
    """Mean and variance of all rows so far.

    Attributes:
      count: `[] float32`, in batches: the sum, over all batches, of the share of their rows that
        counted. So it is the same on any number of devices, and a sum of ones is exact up to 2^24.
      mean: `[...] float32`.
      variance: `[...] float32`, of the rows as a population: divided by their number.
    """

    count: Array
    mean: Array
    variance: Array


def no_moments(shape: tuple[int, ...]) -> Moments:
    """Those of no rows."""
    return Moments(jnp.zeros(()), jnp.zeros(shape), jnp.zeros(shape))


def moments_of(rows: Array, is_counted: Array, mean: Callable[[Tree], Tree]) -> Moments:
    """The moments of one batch, over all devices.

    In two passes, the second of which corrects the mean of the first: rows that are far from 0, or
    many, cost no precision.

    Args:
      rows: `[T, B, ...]`, this device's part of the batch; as many as on every other one.
      is_counted: `[T, B] bool`; other rows may hold anything.
      mean: averages a tree over all devices.

    Source: Chan, Golub and LeVeque 1983, "Algorithms for computing the sample variance", equation
    1.7.
    """
    chex.assert_type(is_counted, bool)
    chex.assert_equal_shape_prefix([rows, is_counted], 2)
    is_counted = is_counted.reshape(*is_counted.shape, *[1] * (rows.ndim - 2))
    rows = jnp.where(is_counted, rows.astype(jnp.float32), 0.0)

    def average(values: Array) -> Array:
        return jnp.mean(values, axis=(0, 1), dtype=jnp.float32)

    share, total = mean((jnp.mean(is_counted, dtype=jnp.float32), average(rows)))
    divisor = jnp.where(share > 0, share, 1.0)
    first = total / divisor
    distances = jnp.where(is_counted, rows - first[None, None], 0.0)
    rest, squares = mean((average(distances), average(jnp.square(distances))))
    correction = rest / divisor
    variance = squares / divisor - jnp.square(correction)
    return Moments(share, first + correction, jnp.maximum(variance, 0.0))


def merged(old: Moments, new: Moments) -> Moments:
    """The moments of the rows of both.

    With w the share of `new` in the count of both, and δ the distance of the means,

      mean = mean_old + w δ
      variance = variance_old + w (variance_new - variance_old + (1 - w) δ²)

    In float32 a count to which a batch adds nothing any more (beyond 2^24 batches) stays: from then
    on older rows are slowly forgotten. Nothing else is lost: merging 100,000 batches of which the
    mean is 10 standard deviations from 0 is off by less than 1e-4 deviations (measured).

    Source: Chan, Golub and LeVeque 1983, equation 2.1.
    """
    count = old.count + new.count
    weight = new.count / jnp.where(count > 0, count, 1.0)
    distance = new.mean - old.mean
    # One small number is added to a large one, not two: each would be rounded, mostly one way.
    change = new.variance - old.variance + (1.0 - weight) * jnp.square(distance)
    return Moments(count, old.mean + weight * distance, old.variance + weight * change)


def deviation(moments: Moments) -> Array:
    """What to divide by, `[...] float32`: 1 before the first row."""
    variance = jnp.where(moments.count > 0, moments.variance, 1.0)
    return jnp.sqrt(variance + EPSILON)
