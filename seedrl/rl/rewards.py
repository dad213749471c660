"""Rewards as they are learned from."""

import jax.numpy as jnp

from seedrl.types import Array


def scaled(reward: Array, scale: float, limit: float) -> Array:
    """`reward` times `scale`, clipped to plus or minus `limit`; a limit of 0 clips nothing."""
    product = scale * reward
    return jnp.clip(product, -limit, limit) if limit else product
