"""The clipped objective of PPO, by time step, and means over those that count.

Means and stds are over the time steps where `is_trained` holds, and divided by their number:
ignored actions neither count nor dilute.
"""

import math

import jax
import jax.numpy as jnp

from seedrl.types import Array


def mean_of(values: Array, is_trained: Array) -> Array:
    """The mean of `values [U, B]` that count, `[] float32`; 0 if there are none."""
    count = jnp.maximum(jnp.sum(is_trained, dtype=jnp.float32), 1.0)
    return jnp.sum(jnp.where(is_trained, values, 0.0)) / count


def normalized(advantages: Array, is_trained: Array, *, least_std: float = 0.0) -> Array:
    """`[U, B]` with mean 0 and std 1 over **all** time steps that count; 0 elsewhere.

    The std becomes less than 1 where that of `advantages` is less than `least_std`.
    """
    centred = advantages - mean_of(advantages, is_trained)
    # Divided by their number n, as JAX does, not by n - 1, as torch does: of 1, 2, 3, 6 the largest
    # becomes 1.60357.
    std = jnp.sqrt(mean_of(jnp.square(centred), is_trained))
    return jnp.where(is_trained, centred / (jnp.maximum(std, least_std) + 1e-8), 0.0)


def clipped_surrogate(
    log_ratios: Array,
    advantages: Array,
    *,
    clip_low: float,
    clip_high: float,
    ratio_cap: float | None = None,
) -> Array:
    """min(r̄ A, clip(r̄, 1 - clip_low, 1 + clip_high) A), `[U, B]`, to be maximised.

    r̄ = min(r, ratio_cap), r = π / μ. The gradient flows through `log_ratios [U, B]`, log π(a|x) -
    log μ(a|x). Where the cap binds its weight is `ratio_cap`, not 0: a bad action that has become
    far more likely is still pushed back. `ratio_cap` is at least `1 + clip_high`, so that it binds
    only where A < 0.

    Source: Schulman et al. 2017, equation 7, https://arxiv.org/abs/1707.06347; two bounds: Yu et
    al. 2025 (DAPO), section 3.1, https://arxiv.org/abs/2503.14476; the cap: Yao et al. 2025,
    "Your efficient RL framework secretly brings you off-policy RL training".
    """
    # A policy gradient: advantages are weights, not something to be maximised themselves.
    advantages = jax.lax.stop_gradient(advantages)
    if ratio_cap is not None:
        # In logarithms: an infinite ratio times 0 is not a number.
        excess = jnp.maximum(log_ratios - math.log(ratio_cap), 0.0)
        log_ratios = log_ratios - jax.lax.stop_gradient(excess)
    ratios = jnp.exp(log_ratios)
    clipped = jnp.clip(ratios, 1.0 - clip_low, 1.0 + clip_high)
    # The lesser of both: a ratio has no gradient beyond ε if going on would raise the objective.
    return jnp.minimum(ratios * advantages, clipped * advantages)


def divergence(log_ratios: Array) -> Array:
    """ratio - 1 - log ratio, `[U, B]`, at least 0: its mean over actions of μ estimates KL(μ, π).

    Source: Schulman 2020, http://joschu.net/blog/kl-approx.html.
    """
    # The other unbiased estimate, -log ratio, can be negative.
    return jnp.expm1(log_ratios) - log_ratios
