"""V-trace: value targets and advantages from experience of another policy than the present one."""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from seedrl.types import Array, StepType, TimeStep


class VTrace(NamedTuple):
    """Of U trained time steps; no gradient flows through any of it."""

    targets: Array  # `[U, B] float32`, v, of the value; V on LAST
    advantages: Array  # `[U, B] float32`, weight of log π(a), with the ratio in it; 0 on LAST
    is_trained: Array  # `[U, B] bool`; False on LAST, whose action was ignored


def vtrace(
    log_ratios: Array,
    values: Array,
    timesteps: TimeStep,
    *,
    gamma: float,
    vtrace_lambda: float,
    rho_bar: float,
    c_bar: float,
    pg_rho_bar: float,
) -> VTrace:
    """V-trace over experience that may span episodes.

    Time step t holds what arrived with observation t: the consequence of action t is in t + 1.
    With ratio_t = π(a_t|x_t) / μ(a_t|x_t), and **0 in its place on LAST**:

      ρ_t = min(ρ̄, ratio_t), c_t = λ min(c̄, ratio_t)
      δ_t = ρ_t (r_{t+1} + γ d_{t+1} V_{t+1} - V_t)
      v_t = V_t + δ_t + γ d_{t+1} c_t (v_{t+1} - V_{t+1}),  v_U = V_U
      q_t = r_{t+1} + γ d_{t+1} (λ v_{t+1} + (1 - λ) V_{t+1})
      advantage_t = min(ρ̄_pg, ratio_t) (q_t - V_t)

    The time step before LAST bootstraps from V of the true last observation if the episode was
    truncated (d = 1), and from nothing if it terminated (d = 0).

    `log_ratios [U, B]` is log π(a_t|x_t) - log μ(a_t|x_t), on LAST anything. V and `timesteps` are
    `[U + 1, B]`, of which the last bootstrap; no observation is looked at. γ and λ are 0 to 1; λ
    (remark 2) and the caps ρ̄, c̄ and ρ̄_pg are 1 in the paper's experiments. ρ̄ decides whose value is
    learned, c̄ how far differences are carried back.

    Source: Espeholt et al. 2018, section 4.1, equation 1 and remark 2,
    https://arxiv.org/abs/1802.01561. λ in q is that of rlax: with ratios of 1 the advantage is
    GAE(λ) (Schulman et al. 2016) for every λ.
    """
    num_steps, batch_size = log_ratios.shape
    chex.assert_shape([values, *timesteps[:3]], (num_steps + 1, batch_size))
    log_ratios, values = jax.lax.stop_gradient((log_ratios, values))
    is_trained = timesteps.step_type[:-1] != StepType.LAST
    # The 0 is what cuts: δ and c of LAST vanish, so v = V there, and nothing of the next episode
    # reaches this one. To mask the loss alone would let its errors leak back.
    ratios = jnp.where(is_trained, jnp.exp(jnp.where(is_trained, log_ratios, 0.0)), 0.0)
    reward = timesteps.reward[1:]
    discount = gamma * timesteps.discount[1:]
    # δ_t (equation 1).
    deltas = jnp.minimum(rho_bar, ratios) * (reward + discount * values[1:] - values[:-1])

    # γ d_{t+1} c_t.
    decays = discount * vtrace_lambda * jnp.minimum(c_bar, ratios)

    def back(later: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
        correction = step[0] + step[1] * later
        return correction, correction

    # v_t - V_t from the end backwards (remark 1).
    _, corrections = jax.lax.scan(back, jnp.zeros(batch_size), (deltas, decays), reverse=True)
    ahead = jnp.concatenate([corrections[1:], jnp.zeros((1, batch_size))])  # v - V, a step later
    # q_t (section 4.2).
    returns = reward + discount * (values[1:] + vtrace_lambda * ahead)
    advantages = jnp.minimum(pg_rho_bar, ratios) * (returns - values[:-1])
    return VTrace(values[:-1] + corrections, advantages, is_trained)
