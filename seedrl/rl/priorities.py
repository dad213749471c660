"""Prioritized sampling as equations: what is stored, and how the bias of the draw is corrected.

Source: Schaul et al. 2016, "Prioritized Experience Replay", sections 3.3 and 3.4,
https://arxiv.org/abs/1511.05952.
"""

import chex
import jax
import jax.numpy as jnp

from seedrl.types import Array

# Masses stay in a range whose sum over 2^20 sequences neither overflows nor underflows in float32.
MIN_MASS = 1e-30
MAX_MASS = 1e30


def stored_mass(priority: Array, exponent: float) -> Array:
    """The unnormalised probability of a sequence.

    m = p^α, clipped to [1e-30, 1e30], for a finite p > 0; m = 0, which means "refused", for a
    priority that is NaN, infinite, zero or negative. The caller decides what takes the place of a
    refused one.

    Args:
      priority: `[...] float32`.
      exponent: α ≥ 0; 0 samples uniformly.

    Returns:
      `[...] float32`.

    Source: Schaul et al. 2016, equation 1. Deviation: the clipping, which no ordinary priority
    meets.
    """
    chex.assert_type(priority, jnp.float32)
    is_valid = jnp.isfinite(priority) & (priority > 0)
    # The inner `where` keeps NaN out of the power, where it could trip a NaN check.
    mass = jnp.power(jnp.where(is_valid, priority, 1.0), exponent)
    return jnp.where(is_valid, jnp.clip(mass, MIN_MASS, MAX_MASS), 0.0)


def shard_probability(probability_in_shard: Array, num_shards: int) -> Array:
    """The probability really drawn when each of n shards gives B/n of a batch of B.

    P(i) = P_shard(i) / n: a shard is asked for B/n draws whatever its mass, so a sequence of a poor
    shard is drawn more often than its share p_i / Σp of all shards would say.

    Args:
      probability_in_shard: `[...] float32`, p_i over the sum of its own shard.
      num_shards: n ≥ 1, over all hosts.

    Returns:
      `[...] float32`.
    """
    assert num_shards >= 1, num_shards
    return probability_in_shard / num_shards


def importance_weights(probability: Array, exponent: float, axis_name: str | None = None) -> Array:
    """Weights that undo the bias of prioritized sampling, scaled so that the largest is 1.

    w_i = P(i)^-β / max_j P(j)^-β; the factor N^-β of the paper cancels. Computed through
    logarithms, so that no power overflows. A probability of 0, which only an empty shard reports,
    weighs 0.

    Args:
      probability: `[B] float32`, probability of each draw, over all shards (see
        `shard_probability`).
      exponent: β in [0, 1]; 1 corrects the bias entirely.
      axis_name: the mapped axis over which the batch is spread: the maximum is taken over all of
        it.

    Returns:
      `[B] float32` in [0, 1].

    Source: Schaul et al. 2016, section 3.4. The maximum is that of the batch, as in the paper's
    implementation notes, not of the whole replay.
    """
    chex.assert_rank(probability, 1)
    chex.assert_type(probability, jnp.float32)
    is_drawn = probability > 0
    log_weight = jnp.where(
        is_drawn, -exponent * jnp.log(jnp.where(is_drawn, probability, 1.0)), -jnp.inf
    )
    largest = jnp.max(log_weight)
    if axis_name is not None:
        largest = jax.lax.pmax(largest, axis_name)
    return jnp.where(is_drawn, jnp.exp(log_weight - largest), 0.0)
