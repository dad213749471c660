"""Prioritized replay: a sequence's priority, how it is sampled by it, and the bias corrected.

Source: Schaul et al. 2016, "Prioritized Experience Replay", https://arxiv.org/abs/1511.05952.
"""

from collections.abc import Callable

import chex
import jax.numpy as jnp

from seedrl.types import Array

# Weights stay in a range whose sum over 2^20 sequences neither overflows nor underflows in float32.
MIN_SAMPLING_WEIGHT = 1e-30
MAX_SAMPLING_WEIGHT = 1e30


def sequence_priority(errors: Array, is_trained: Array, *, eta: float = 0.9) -> Array:
    """p = η max_t |δ_t| + (1 - η) mean_t |δ_t| over the trained time steps.

    `errors` and `is_trained` are `[U, B]`, η is 0 to 1. The result, `[B] float32`, is 0 for a
    sequence without a trained time step: see `sampling_weight_of`.

    Source: Kapturowski et al. 2019, section 2.3 (η = 0.9).
    """
    chex.assert_rank(errors, 2)
    chex.assert_equal_shape([errors, is_trained])
    sizes = jnp.where(is_trained, jnp.abs(errors), 0.0)
    num_trained = jnp.sum(is_trained, axis=0, dtype=errors.dtype)
    mean = jnp.sum(sizes, axis=0) / jnp.maximum(num_trained, 1.0)
    return eta * jnp.max(sizes, axis=0) + (1 - eta) * mean


def sampling_weight_of(priority: Array, exponent: float) -> Array:
    """The unnormalised probability of sequences: w = p^α, `[...] float32`, for a finite p > 0.

    A priority of 0 says that nothing can be learned from the sequence: w = 1e-30 for every α, the
    smallest weight there is, so that it is drawn only where there is nothing else. w = 0, which
    means "refused", for a priority that is NaN, infinite or negative: the caller decides what takes
    its place. α ≥ 0; 0 samples all sequences of a positive priority alike.

    Source: Schaul et al. 2016, equation 1. Deviation: 0, and clipping to [1e-30, 1e30].
    """
    chex.assert_type(priority, jnp.float32)
    is_valid = jnp.isfinite(priority) & (priority >= 0)
    is_positive = is_valid & (priority > 0)
    # The inner `where` keeps NaN out of the power, where it could trip a NaN check.
    weight = jnp.power(jnp.where(is_positive, priority, 1.0), exponent)
    weight = jnp.clip(weight, MIN_SAMPLING_WEIGHT, MAX_SAMPLING_WEIGHT)
    weight = jnp.where(is_positive, weight, MIN_SAMPLING_WEIGHT)
    return jnp.where(is_valid, weight, 0.0)


def importance_weights(
    probability: Array, exponent: float, largest: Callable[[Array], Array]
) -> Array:
    """Weights that undo the bias of prioritized sampling, scaled so that the largest is 1.

    w_i = P(i)^-β / max_j P(j)^-β, `[B] float32` in [0, 1]; the factor N^-β of the paper cancels.

    `probability [B] float32` is that of each draw within its shard: every one of n shards gives B/n
    draws whatever the sum of its priorities, so P(i) is P_shard(i) / n, and n cancels too. 0, which
    only an empty shard reports, weighs 0. β is 0 to 1; 1 corrects the bias entirely. `largest`
    gives the maximum of a scalar over all devices that the batch is spread over.

    Source: Schaul et al. 2016, section 3.4. The paper leaves open what the maximum is taken over;
    here it is the batch.
    """
    chex.assert_rank(probability, 1)
    chex.assert_type(probability, jnp.float32)
    is_drawn = probability > 0
    # Through logarithms, so that no power overflows.
    log_weight = jnp.where(
        is_drawn, -exponent * jnp.log(jnp.where(is_drawn, probability, 1.0)), -jnp.inf
    )
    highest = largest(jnp.max(log_weight))
    return jnp.where(is_drawn, jnp.exp(log_weight - highest), 0.0)
