"""A policy over real actions: D numbers, each from a Gaussian of its own, not squashed.

What lies beyond [-1, 1] is executed as the nearest of these, and stored as it was drawn: so the
probability of an action is that of what was drawn.
"""

import math

import chex
import jax
import jax.numpy as jnp

from seedrl.types import Array


def log_probability(mean: Array, log_std: Array, action: Array) -> Array:
    """ln N(a; μ, σ²), summed over the D numbers: `[..., D] float32` each -> `[...] float32`.

    Acting and the loss both call this, so that the same parameters give the same number.
    """
    chex.assert_type([mean, log_std, action], jnp.float32)
    chex.assert_equal_shape([mean, log_std, action])
    distance = (action - mean) * jnp.exp(-log_std)
    return -jnp.sum(0.5 * jnp.square(distance) + log_std + 0.5 * math.log(2 * math.pi), axis=-1)


def entropy(log_std: Array) -> Array:
    """Of what is drawn, `[..., D] -> [...] float32`: the differential entropy, in nats."""
    return jnp.sum(log_std + 0.5 * math.log(2 * math.pi * math.e), axis=-1)


def drawn(mean: Array, log_std: Array, exploration: Array, key: Array) -> Array:
    """Actions, `[B, D] float32`: `exploration [B]` of 1 draws from the policy, 0 takes the mean."""
    noise = exploration[:, None] * jax.random.normal(key, mean.shape)
    return mean + jnp.exp(log_std) * noise
