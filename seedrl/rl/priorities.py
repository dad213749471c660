"""Priorities: that of a sequence, from its errors, and the mass by which it is sampled."""

import chex
import jax.numpy as jnp

from seedrl.types import Array

# Masses stay in a range whose sum over 2^20 sequences neither overflows nor underflows in float32.
MIN_MASS = 1e-30
MAX_MASS = 1e30


def sequence_priority(errors: Array, is_trained: Array, *, mix: float = 0.9) -> Array:
    """p = η max_t |δ_t| + (1 - η) mean_t |δ_t| over the trained rows.

    Args:
      errors: `[U, B] float32`, in the (scaled) space of the loss.
      is_trained: `[U, B] bool`; rows that are False count neither in the maximum nor in the mean.
      mix: η in [0, 1].

    Returns:
      `[B] float32`. 0 for a sequence without a trained row: see `stored_mass`.

    Source: Kapturowski et al. 2019, section 2.3 (η = 0.9).
    """
    chex.assert_rank(errors, 2)
    chex.assert_equal_shape([errors, is_trained])
    sizes = jnp.where(is_trained, jnp.abs(errors), 0.0)
    num_trained = jnp.sum(is_trained, axis=0, dtype=errors.dtype)
    mean = jnp.sum(sizes, axis=0) / jnp.maximum(num_trained, 1.0)
    return mix * jnp.max(sizes, axis=0) + (1 - mix) * mean


def stored_mass(priority: Array, exponent: float) -> Array:
    """The unnormalised probability of a sequence.

    m = p^α, clipped to [1e-30, 1e30], for a finite p > 0. A priority of 0 says that nothing can be
    learned from the sequence: m = 1e-30 for every α, the smallest mass there is, so that it is
    drawn only where there is nothing else. m = 0, which means "refused", for a priority that is
    NaN, infinite or negative: the caller decides what takes its place.

    Args:
      priority: `[...] float32`.
      exponent: α ≥ 0; 0 samples all sequences of a positive priority alike.

    Returns:
      `[...] float32`.

    Source: Schaul et al. 2016, equation 1, https://arxiv.org/abs/1511.05952. Deviation: the
    clipping, which no ordinary priority meets, and 0.
    """
    chex.assert_type(priority, jnp.float32)
    is_valid = jnp.isfinite(priority) & (priority >= 0)
    is_positive = is_valid & (priority > 0)
    # The inner `where` keeps NaN out of the power, where it could trip a NaN check.
    mass = jnp.power(jnp.where(is_positive, priority, 1.0), exponent)
    mass = jnp.where(is_positive, jnp.clip(mass, MIN_MASS, MAX_MASS), MIN_MASS)
    return jnp.where(is_valid, mass, 0.0)
