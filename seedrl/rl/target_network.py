"""The target network: an older copy of the parameters, which targets are computed with."""

import jax
import jax.numpy as jnp
import optax

from seedrl.types import Array, Tree


def copied(params: Tree) -> Tree:
    """Parameters that share no memory with `params`, which an update consumes."""
    return jax.tree.map(jnp.copy, params)


def periodic_copy(interval: int, params: Tree, target: Tree, updates: Array) -> Tree:
    """`params` if `updates`, an integer scalar, is a multiple of `interval`, else `target`.

    Source: Mnih et al. 2015, "Human-level control through deep reinforcement learning", Methods.
    """
    is_due = updates % interval == 0
    return jax.tree.map(lambda new, old: jnp.where(is_due, new, old), params, target)


def polyak_average(rate: float, params: Tree, target: Tree) -> Tree:
    """θ' + τ (θ - θ'): `target` after it has gone `rate` of the way to `params`.

    Source: Lillicrap et al. 2016, "Continuous control with deep reinforcement learning", section 3.
    """
    return optax.incremental_update(params, target, rate)
