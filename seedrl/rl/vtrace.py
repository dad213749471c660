"""V-trace: value targets and advantages from experience of another policy than the present one."""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from seedrl.types import Array, StepType, TimeStep


class VTraceSettings(NamedTuple):
    """What V-trace depends on; names in brackets are those of the paper.

    Attributes:
      gamma: discount of one step, 0 to 1.
      vtrace_lambda: λ, 0 to 1 (remark 2); 1 in the paper's experiments.
      rho_bar: ρ̄, caps the ratio in temporal differences: which policy's value is learned.
      c_bar: c̄, caps the ratio in the traces: how far differences are carried back.
      pg_rho_bar: caps the ratio that weights the policy gradient.
    """

    gamma: float
    vtrace_lambda: float = 1.0
    rho_bar: float = 1.0
    c_bar: float = 1.0
    pg_rho_bar: float = 1.0


class VTrace(NamedTuple):
    """Of U trained rows; no gradient flows through any of it.

    Attributes:
      targets: `[U, B] float32`, v: what the value of a row is to become.
      advantages: `[U, B] float32`, what weights log π(a) of a row; the ratio is in it already.
      is_trained: `[U, B] bool`; False on LAST rows, whose action was ignored: their target is
        V, their advantage 0.
    """

    targets: Array
    advantages: Array
    is_trained: Array


def vtrace(
    log_ratios: Array, values: Array, timesteps: TimeStep, settings: VTraceSettings
) -> VTrace:
    """V-trace over rows of experience that may span episodes.

    Row t holds what arrived with observation t, so the consequence of action t is in row t + 1.
    With ratio_t = π(a_t|x_t) / μ(a_t|x_t), and **0 in its place on LAST rows**:

      ρ_t = min(ρ̄, ratio_t), c_t = λ min(c̄, ratio_t)
      δ_t = ρ_t (r_{t+1} + γ d_{t+1} V_{t+1} - V_t)
      v_t = V_t + δ_t + γ d_{t+1} c_t (v_{t+1} - V_{t+1}),  v_U = V_U
      q_t = r_{t+1} + γ d_{t+1} (λ v_{t+1} + (1 - λ) V_{t+1})
      advantage_t = min(ρ̄_pg, ratio_t) (q_t - V_t)

    The 0 is what cuts: δ and c of a LAST row vanish, so v = V there; the row before it bootstraps
    from V of the true last observation if the episode was truncated (d = 1), and from nothing if it
    terminated (d = 0). To mask the loss alone would let errors of the next episode leak back.

    Args:
      log_ratios: `[U, B] float32`, log π(a_t|x_t) - log μ(a_t|x_t); of LAST rows anything.
      values: `[U + 1, B] float32`, V with the last row to bootstrap from.
      timesteps: `step_type`, `reward` and `discount`, `[U + 1, B]`; no observation is looked at.
      settings: see VTraceSettings.

    Source: Espeholt et al. 2018, section 4.1, equation 1 and remark 2,
    https://arxiv.org/abs/1802.01561. λ in q is that of rlax: with ratios of 1 the advantage is
    GAE(λ) (Schulman et al. 2016) for every λ.
    """
    num_rows, batch_size = log_ratios.shape
    chex.assert_shape([values, *timesteps[:3]], (num_rows + 1, batch_size))
    log_ratios, values = jax.lax.stop_gradient((log_ratios, values))
    is_trained = timesteps.step_type[:-1] != StepType.LAST
    # The ratios of LAST steps are 0, so nothing of the next episode reaches this one.
    ratios = jnp.where(is_trained, jnp.exp(jnp.where(is_trained, log_ratios, 0.0)), 0.0)
    reward = timesteps.reward[1:]
    discount = settings.gamma * timesteps.discount[1:]
    deltas = jnp.minimum(settings.rho_bar, ratios) * (reward + discount * values[1:] - values[:-1])

    decays = discount * settings.vtrace_lambda * jnp.minimum(settings.c_bar, ratios)

    def back(later: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        correction = row[0] + row[1] * later
        return correction, correction

    _, corrections = jax.lax.scan(back, jnp.zeros(batch_size), (deltas, decays), reverse=True)
    ahead = jnp.concatenate([corrections[1:], jnp.zeros((1, batch_size))])  # v - V, one row later
    returns = reward + discount * (values[1:] + settings.vtrace_lambda * ahead)
    advantages = jnp.minimum(settings.pg_rho_bar, ratios) * (returns - values[:-1])
    return VTrace(values[:-1] + corrections, advantages, is_trained)
