"""The clipped objectives of PPO, row by row, and what is said of all rows that count.

Means and deviations are over the rows where `is_trained` holds, and divided by their number: rows
of ignored actions neither count nor dilute.
"""

import jax
import jax.numpy as jnp

from seedrl.types import Array


def mean_of(rows: Array, is_trained: Array) -> Array:
    """The mean over the rows that count, `[] float32`; 0 if there are none. `rows [U, B]`."""
    count = jnp.maximum(jnp.sum(is_trained, dtype=jnp.float32), 1.0)
    return jnp.sum(jnp.where(is_trained, rows, 0.0)) / count


def normalized(advantages: Array, is_trained: Array, epsilon: float = 1e-8) -> Array:
    """`[U, B]` with mean 0 and deviation 1 over **all** rows that count; 0 elsewhere.

    The deviation divides by their number n, as JAX does, not by n - 1, as torch does: of 1, 2, 3, 6
    the largest becomes 1.60357.
    """
    centred = advantages - mean_of(advantages, is_trained)
    deviation = jnp.sqrt(mean_of(jnp.square(centred), is_trained))
    return jnp.where(is_trained, centred / (deviation + epsilon), 0.0)


def clipped_surrogate(log_ratios: Array, advantages: Array, clip: float) -> Array:
    """min(ratio A, clip(ratio, 1 - ε, 1 + ε) A), `[U, B]`, to be maximised.

    A ratio has no gradient beyond ε if going on would raise the objective.

    Args:
      log_ratios: `[U, B]`, log π(a|x) - log μ(a|x), through which the gradient flows.
      advantages: `[U, B]`; none flows through these.
      clip: ε.

    Source: Schulman et al. 2017, equation 7, https://arxiv.org/abs/1707.06347.
    """
    # A policy gradient: advantages are weights, not something to be maximised themselves.
    advantages = jax.lax.stop_gradient(advantages)
    ratios = jnp.exp(log_ratios)
    clipped = jnp.clip(ratios, 1.0 - clip, 1.0 + clip)
    return jnp.minimum(ratios * advantages, clipped * advantages)


def clipped_square(values: Array, old_values: Array, targets: Array, clip: float) -> Array:
    """(V - target)², `[U, B]`; or, if larger, that of V clipped to within `clip` of the old V.

    A `clip` of 0 clips nothing.

    Source: Huang et al. 2022, "The 37 implementation details of PPO", detail 9.
    """
    square = jnp.square(values - targets)
    if not clip:
        return square
    near = old_values + jnp.clip(values - old_values, -clip, clip)
    return jnp.maximum(square, jnp.square(near - targets))


def divergence(log_ratios: Array) -> Array:
    """ratio - 1 - log ratio, `[U, B]`, at least 0: its mean over rows of μ estimates KL(μ, π).

    The other unbiased estimate, -log ratio, can be negative (Schulman 2020,
    http://joschu.net/blog/kl-approx.html).
    """
    return jnp.expm1(log_ratios) - log_ratios
