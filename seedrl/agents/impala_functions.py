"""IMPALA as pure functions (Espeholt et al. 2018); `ImpalaConfig.build` makes an agent of them."""

from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import optax

from seedrl.agents.agent import ActOutput
from seedrl.agents.gradient_update import LossOutput
from seedrl.agents.learning_rate import rate_of
from seedrl.agents.network_inputs import AgentCarry, inputs_of_row, inputs_of_sequence
from seedrl.networks.network import Network, PolicyAndValue
from seedrl.rl import categorical
from seedrl.rl.returns import scaled
from seedrl.rl.vtrace import VTrace, VTraceSettings, vtrace
from seedrl.types import Array, Sequence, TimeStep, Tree


class Objective(NamedTuple):
    """What is minimised on a sequence.

    Attributes:
      unroll: U, its trained rows; one more bootstraps.
      vtrace: see VTraceSettings.
      value_cost: weight of the value loss.
      entropy_cost: weight of the entropy, which is maximised.
      reward_scale: rewards are multiplied by this.
      reward_clip: and then clipped to plus or minus this; 0 clips none.
    """

    unroll: int
    vtrace: VTraceSettings
    value_cost: float
    entropy_cost: float
    reward_scale: float
    reward_clip: float


class LossParts(NamedTuple):
    """The parts of a loss, `[] float32` each, before they are weighted."""

    policy: Array
    value: Array
    entropy: Array


def act(
    network: Network,
    params: Tree,
    carry: AgentCarry,
    timestep: TimeStep,
    exploration: Array,
    key: Array,
) -> ActOutput:
    """Actions of the policy on one row; log μ(a), `[B] float32`, is stored as extras.

    `timestep` has leaves `[B, ...]`. `exploration [B] float32` of 1 draws from the policy, of 0 it
    takes the most likely action.
    """
    chex.assert_rank([timestep.step_type, timestep.reward, exploration], 1)
    output, network_carry = network.unroll(params, carry.network, inputs_of_row(carry, timestep))
    logits = output.logits[0]
    action = categorical.drawn(logits, exploration, key)
    return ActOutput(
        action=action,
        carry=AgentCarry(network_carry, action),
        extras=categorical.log_probability(logits, action),
    )


def loss(
    objective: Objective,
    network: Network,
    params: Tree,
    target: Tree,
    sequence: Sequence,
    weights: Array,
    key: Array,
) -> tuple[Array, LossOutput]:
    """Policy gradient, value loss and entropy, means over `U * B` rows; LAST rows count as 0.

    `sequence` has leaves `[U + 1, B, ...]`, its extras are log μ(a); `weights` is `[B] float32`.
    """
    del target, key  # there is none; nothing is drawn
    steps, num_rows = sequence.steps, objective.unroll
    chex.assert_shape([steps.action, steps.extras], (num_rows + 1, *weights.shape))
    output, _ = network.unroll(params, sequence.carry.network, inputs_of_sequence(sequence))
    logits = output.logits[:num_rows]
    log_policy = categorical.log_probability(logits, steps.action[:num_rows])
    log_ratios = jax.lax.stop_gradient(log_policy) - steps.extras[:num_rows]
    reward = scaled(steps.timestep.reward, objective.reward_scale, objective.reward_clip)
    rewarded = steps.timestep._replace(reward=reward)
    corrected = vtrace(log_ratios, output.value, rewarded, objective.vtrace)
    trained = corrected.is_trained * weights[None]
    errors = corrected.targets - output.value[:num_rows]
    parts = LossParts(
        policy=-jnp.mean(trained * log_policy * corrected.advantages),
        value=0.5 * jnp.mean(trained * jnp.square(errors)),
        entropy=jnp.mean(trained * categorical.entropy(logits)),
    )
    total = (
        parts.policy + objective.value_cost * parts.value - objective.entropy_cost * parts.entropy
    )
    metrics = _metrics(parts, output, log_ratios, corrected, objective.vtrace)
    return total, LossOutput(priorities=(), metrics=metrics)


def _metrics(
    parts: LossParts,
    output: PolicyAndValue,
    log_ratios: Array,
    corrected: VTrace,
    settings: VTraceSettings,
) -> dict[str, Array]:
    is_trained = corrected.is_trained
    num_trained = jnp.maximum(jnp.sum(is_trained, dtype=jnp.float32), 1.0)
    log_ratios = jnp.where(is_trained, log_ratios, 0.0)  # ratios of 1
    ratios = jnp.exp(log_ratios)

    def mean(rows: Array) -> Array:
        return jnp.sum(jnp.where(is_trained, rows, 0.0)) / num_trained

    return {
        "policy_loss": parts.policy,
        "value_loss": parts.value,
        "entropy": parts.entropy,
        "value_mean": jnp.mean(output.value),
        "advantage_size": mean(jnp.abs(corrected.advantages)),
        "behaviour_kl": mean(ratios - 1.0 - log_ratios),
        "ratio_max": jnp.max(ratios),
        "ratio_clipped_fraction": mean(ratios > settings.rho_bar),
        "ratio_low_fraction": mean(ratios < 0.5),
        "trained_fraction": jnp.mean(is_trained, dtype=jnp.float32),
    }


def objective_of(config: Any) -> Objective:
    """What is minimised under an `ImpalaConfig`."""
    return Objective(
        unroll=config.unroll,
        vtrace=VTraceSettings(
            gamma=config.gamma,
            trace_lambda=config.trace_lambda,
            rho_bar=config.rho_bar,
            c_bar=config.c_bar,
            pg_rho_bar=config.pg_rho_bar,
            correction=config.correction,
        ),
        value_cost=config.value_cost,
        entropy_cost=config.entropy_cost,
        reward_scale=config.reward_scale,
        reward_clip=config.reward_clip,
    )


def optimizer_of(config: Any) -> optax.GradientTransformation:
    """Adam on clipped gradients, as an `ImpalaConfig` has it."""
    clip = optax.clip_by_global_norm(config.max_gradient_norm)
    b1, b2, epsilon = config.adam_b1, config.adam_b2, config.adam_epsilon
    return optax.chain(clip, optax.adam(rate_of(config), b1=b1, b2=b2, eps=epsilon))
