"""Generalized advantage estimation: how much better an action was than its state's value."""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from seedrl.types import Array, StepType, TimeStep


class Advantages(NamedTuple):
    """Of U trained time steps; no gradient flows through any of it."""

    advantages: Array  # `[U, B] float32`; 0 on LAST
    targets: Array  # `[U, B] float32`, of the value: TD(λ) returns; V on LAST
    is_trained: Array  # `[U, B] bool`; False on LAST, whose action was ignored


def gae(values: Array, timesteps: TimeStep, *, gamma: float, gae_lambda: float) -> Advantages:
    """GAE(λ) over experience that may span episodes.

    Time step t holds what arrived with observation t: the consequence of action t is in t + 1.

      δ_t = r_{t+1} + γ d_{t+1} V_{t+1} - V_t,  **0 on LAST**
      A_t = δ_t + γ d_{t+1} λ A_{t+1},          **0 on LAST**, A_U = 0
      target_t = A_t + V_t

    The time step before LAST bootstraps from V of the true last observation if the episode was
    truncated (d = 1), and from nothing if it terminated (d = 0).

    V and `timesteps` are `[U + 1, B]`, of which the last bootstrap; γ and λ are 0 to 1. No
    observation is looked at.

    Source: Schulman et al. 2016, equation 16, https://arxiv.org/abs/1506.02438; time limits as in
    Pardo et al. 2018, https://arxiv.org/abs/1712.00378.
    """
    batch_size = values.shape[1]
    chex.assert_shape(timesteps[:3], values.shape)
    values = jax.lax.stop_gradient(values)
    is_trained = timesteps.step_type[:-1] != StepType.LAST
    discount = gamma * timesteps.discount[1:]
    # δ_t; A_t below sums them by (γ λ)^k (equation 16).
    deltas = timesteps.reward[1:] + discount * values[1:] - values[:-1]

    def back(later: Array, step: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        delta, decay, is_trained = step
        # The 0 is what cuts: nothing of an episode reaches the one before. A selection, not a
        # product: an ignored step may hold infinity, and 0 * inf is NaN.
        advantage = jnp.where(is_trained, delta + decay * later, 0.0)
        return advantage, advantage

    steps = (deltas, discount * gae_lambda, is_trained)
    _, advantages = jax.lax.scan(back, jnp.zeros(batch_size), steps, reverse=True)
    return Advantages(advantages, advantages + values[:-1], is_trained)
