"""A policy over discrete actions, as logits `[..., A] float32`: probabilities, entropy, draws."""

import chex
import jax
import jax.numpy as jnp

from seedrl.types import Array


def log_probability(logits: Array, action: Array) -> Array:
    """log π(a): `logits [..., A] float32`, `action [...] int32` -> `[...] float32`.

    Acting and the loss both call this, so that the same parameters give the same number.
    """
    chex.assert_type(logits, jnp.float32)
    log_policy = jax.nn.log_softmax(logits)
    return jnp.take_along_axis(log_policy, action[..., None], axis=-1)[..., 0]


def entropy(logits: Array) -> Array:
    """-Σ π log π, `[...] float32`."""
    log_policy = jax.nn.log_softmax(logits)
    # Of probability 0 are actions that a network forbids: 0 * -inf would be NaN. NaN itself stays.
    finite = jnp.where(log_policy == -jnp.inf, 0.0, log_policy)
    return -jnp.sum(jnp.exp(log_policy) * finite, axis=-1)


def drawn(logits: Array, exploration: Array, key: Array) -> Array:
    """Actions, `[B] int32`: `exploration [B] float32` of 1 draws from the policy, 0 takes the mode.

    `logits` is `[B, A]`.
    """
    # The largest of logits with Gumbel noise is a draw from their softmax.
    noise = exploration[:, None] * jax.random.gumbel(key, logits.shape)
    return jnp.argmax(logits + noise, axis=-1).astype(jnp.int32)
