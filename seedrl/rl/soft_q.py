"""Soft Q-learning: targets whose values count the entropy of the policy, too."""

import chex
import jax
import jax.numpy as jnp

from seedrl.types import Array


def soft_targets(
    reward_t: Array,
    discount_t: Array,
    q_t: Array,
    log_probability_t: Array,
    *,
    gamma: float,
    temperature: Array,
) -> Array:
    """y = r_t + γ d_t (min_i Q_i(s_t, a_t) - α ln π(a_t|s_t)), no gradient: `[N] float32`.

    All are `[N] float32`, `q_t [2, N]` of the target critics, α `[]`. Reward and discount are
    consequences of the action before; a truncated episode has a discount of 1, and bootstraps. The
    present policy drew a_t.

    Source: Haarnoja et al. 2018b, equations 3 and 5, https://arxiv.org/abs/1812.05905; the smaller
    of two critics: Fujimoto et al. 2018, equation 10.
    """
    chex.assert_rank(q_t, 2)
    chex.assert_equal_shape([reward_t, discount_t, q_t[0], log_probability_t])
    # The smaller critic: a maximum over noisy values is biased upwards, and bootstrapping adds up.
    values = jnp.min(q_t, axis=0) - temperature * log_probability_t
    return jax.lax.stop_gradient(reward_t + gamma * discount_t * values)
