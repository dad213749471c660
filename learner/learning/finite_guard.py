"""What keeps an update that is not finite from being learned from, and from being drawn again."""

import functools

import jax
import jax.numpy as jnp

from seedrl.agents.agent import UpdateOutput
from seedrl.types import Array, Tree


def is_all_finite(guarded: Tree) -> Array:
    """Whether all of it is finite, `[] bool`, on this device: all devices have to agree on it."""
    return functools.reduce(
        jnp.logical_and, [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(guarded)]
    )


def priorities_after(
    output: UpdateOutput, weights: Array, is_applied: Array, is_enabled: Array
) -> Array:
    """What the sequences of a batch get, `[B] float32`; NaN keeps what they have.

    Those of an update that is skipped get 0, the least there is: whatever made it not finite would
    be drawn again, for as long as it is stored.
    """
    kept = jnp.full_like(weights, jnp.nan)
    (priorities,) = jax.tree.leaves(output.priorities) or (kept,)
    if priorities.shape != weights.shape:
        # Chunk i of sequence b is at column i B + b: a sequence has the largest of its chunks.
        priorities = jnp.max(priorities.reshape(-1, *weights.shape), axis=0)
    return jnp.where(is_applied, priorities, jnp.where(is_enabled, 0.0, kept))
