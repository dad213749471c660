"""The priority of a sequence from its temporal-difference errors."""

import chex
import jax.numpy as jnp

from seedrl.types import Array


def sequence_priority(errors: Array, is_trained: Array, *, mix: float = 0.9) -> Array:
    """p = η max_t |δ_t| + (1 - η) mean_t |δ_t| over the trained rows.

    Args:
      errors: `[U, B] float32`, in the (scaled) space of the loss.
      is_trained: `[U, B] bool`; rows that are False count neither in the maximum nor in the mean.
      mix: η in [0, 1].

    Returns:
      `[B] float32`. 0 for a sequence without a trained row: replay never samples it.

    Source: Kapturowski et al. 2019, section 2.3 (η = 0.9).
    """
    chex.assert_rank(errors, 2)
    chex.assert_equal_shape([errors, is_trained])
    sizes = jnp.where(is_trained, jnp.abs(errors), 0.0)
    num_trained = jnp.sum(is_trained, axis=0, dtype=errors.dtype)
    mean = jnp.sum(sizes, axis=0) / jnp.maximum(num_trained, 1.0)
    return mix * jnp.max(sizes, axis=0) + (1 - mix) * mean
