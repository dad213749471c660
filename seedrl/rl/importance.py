"""How the bias of prioritized sampling is corrected: importance weights.

Source: Schaul et al. 2016, "Prioritized Experience Replay", section 3.4,
https://arxiv.org/abs/1511.05952.
"""

from collections.abc import Callable

import chex
import jax.numpy as jnp

from seedrl.types import Array


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


def importance_weights(
    probability: Array, exponent: float, largest: Callable[[Array], Array] | None = None
) -> Array:
    """Weights that undo the bias of prioritized sampling, scaled so that the largest is 1.

    w_i = P(i)^-β / max_j P(j)^-β; the factor N^-β of the paper cancels. Computed through
    logarithms, so that no power overflows. A probability of 0, which only an empty shard reports,
    weighs 0.

    Args:
      probability: `[B] float32`, probability of each draw, over all shards (see
        `shard_probability`).
      exponent: β in [0, 1]; 1 corrects the bias entirely.
      largest: gives the maximum of a scalar over all devices that the batch is spread over; None
        for one device.

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
    highest = jnp.max(log_weight)
    if largest is not None:
        highest = largest(highest)
    return jnp.where(is_drawn, jnp.exp(log_weight - highest), 0.0)
