"""SAC as pure functions (Haarnoja et al. 2018b); `SacConfig.build` makes an agent of them."""

import math
from collections.abc import Callable
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import optax

from seedrl.agents.agent import ActOutput
from seedrl.agents.gradient_update import LossOutput, copied
from seedrl.agents.network_inputs import AgentCarry, inputs_of_row, unrolled_after_burn_in
from seedrl.agents.sac.transitions import Transitions, transitions
from seedrl.errors import ConfigError
from seedrl.networks.sac import BoxNetwork, CriticParams
from seedrl.rl import tanh_gaussian
from seedrl.rl.priorities import sequence_priority
from seedrl.rl.soft_q import soft_targets
from seedrl.rl.tanh_gaussian import TanhSample
from seedrl.specs import BoxSpec, EnvSpec
from seedrl.types import Array, Sequence, TimeStep, Tree


class SacParams(NamedTuple):
    """What SAC learns.

    Attributes:
      actor: of the policy.
      critics: `CriticParams`, of both critics and their memory; they alone have a target.
      log_temperature: ln α, `[] float32`.
    """

    actor: Tree
    critics: Tree
    log_temperature: Array


class Behaviour(NamedTuple):
    """What SAC acts with.

    Attributes:
      actor: see `SacParams`.
      memory: that of the critics, which the actor sees too.
    """

    actor: Tree
    memory: Tree


class Objective(NamedTuple):
    """What is minimised on a batch.

    Attributes:
      burn_in: rows of a sequence that only warm the memory up.
      gamma: discount of one step.
      target_entropy: H̄, in nats.
    """

    burn_in: int
    gamma: float
    target_entropy: float


class LossParts(NamedTuple):
    """The losses of the three parts of the parameters, `[] float32` each."""

    critics: Array
    actor: Array
    temperature: Array


class CriticErrors(NamedTuple):
    """Where the critics stand on N rows.

    Attributes:
      q_values: `[2, N] float32`.
      targets: `[N] float32`, the same for both.
      errors: `[2, N] float32`, targets minus Q-values; 0 where not trained.
    """

    q_values: Array
    targets: Array
    errors: Array


def action_shape(spec: EnvSpec) -> tuple[int, ...]:
    """The shape of an action. Raises ConfigError for actions that are not a box."""
    if isinstance(spec.action, BoxSpec):
        return spec.action.shape
    raise ConfigError(
        f"agent: SAC chooses real actions of a box, the environment has {spec.action.num_actions} "
        "discrete ones; choose an agent for discrete actions"
    )


def init(network: BoxNetwork, initial_temperature: float, key: Array) -> SacParams:
    """Fresh parameters. Consumes the key."""
    actor_key, critic_key = jax.random.split(key)
    return SacParams(
        network.init_actor(actor_key),
        network.init_critics(critic_key),
        jnp.float32(math.log(initial_temperature)),
    )


def behaviour(params: SacParams) -> Behaviour:
    """The actor acts, on what the memory gives; the critics themselves do not."""
    return Behaviour(params.actor, params.critics.memory)


def has_memory(network: BoxNetwork) -> bool:
    """Whether anything is carried from row to row."""
    return bool(jax.tree.leaves(jax.eval_shape(lambda: network.memory.initial_carry(1))))


def init_target(params: SacParams) -> CriticParams:
    """The critics alone have a target, and their memory with them."""
    target: CriticParams = copied(params.critics)
    return target


def update_target(
    average: Callable[[Tree, Tree], Tree], params: SacParams, target: Tree, updates: Array
) -> Tree:
    """The target critics, moved towards the critics at each update."""
    del updates
    return average(params.critics, target)


def optimizer(*, actor: float, critics: float, temperature: float) -> optax.GradientTransformation:
    """Adam for each part of the parameters, at a learning rate of its own."""
    rates = SacParams(actor, critics, temperature)._asdict()
    labels = SacParams(*SacParams._fields)
    return optax.partition({name: optax.adam(rate) for name, rate in rates.items()}, labels)


def act(
    network: BoxNetwork,
    shape: tuple[int, ...],
    behaviour: Behaviour,
    carry: AgentCarry,
    timestep: TimeStep,
    exploration: Array,
    key: Array,
) -> ActOutput:
    """Actions `[B, *shape] float32` in [-1, 1]: tanh(μ + exploration σ ε).

    `timestep` has leaves `[B, ...]`. `exploration [B] float32` of 1 draws from the policy, of 0 it
    takes tanh(μ).
    """
    chex.assert_rank([timestep.step_type, exploration], 1)
    inputs = inputs_of_row(carry, timestep)
    memory, next_carry = network.memory.unroll(behaviour.memory, carry.network, inputs)
    memory = jax.tree.map(lambda leaf: leaf[0], memory)
    policy = network.policy(behaviour.actor, memory, timestep.observation)
    noise = exploration[:, None] * jax.random.normal(key, policy.mean.shape)
    action = jnp.tanh(policy.mean + jnp.exp(policy.log_std) * noise).reshape(-1, *shape)
    return ActOutput(action, AgentCarry(next_carry, action), extras=())


def loss(
    objective: Objective,
    network: BoxNetwork,
    params: SacParams,
    target: CriticParams,
    sequence: Sequence,
    weights: Array,
    key: Array,
) -> tuple[Array, LossOutput]:
    """The losses of critics, actor and temperature, summed: each has a gradient for its part alone.

      J_Q = Σ_i ½ (Q_i(s, a) - y)²,  J_π = α ln π(a'|s) - min_i Q_i(s, a'),  J_α = ln α (H - H̄)

    Means over `U * B` rows; LAST rows count as 0. `sequence` has leaves `[T, B, ...]` with
    `T = burn_in + U + 1`, `weights` is `[B] float32`. The gradient of J_α is with respect to ln α,
    as in the code of SAC's authors, where the paper has α.

    J_Q alone has a gradient for the memory: to the actor it is a constant, like an observation.

    Source: Haarnoja et al. 2018b, equations 5, 7 and 18, https://arxiv.org/abs/1812.05905.
    """
    chex.assert_rank(weights, 1)
    target_key, actor_key = jax.random.split(key)
    rows = _rows(objective, network, params, target, sequence)
    counted = jnp.tile(weights, rows.reward.shape[0] // weights.shape[0]) * rows.is_trained

    targets = _targets(objective, network, params, target, rows, target_key)
    q_values = network.q_values(params.critics, rows.memory, rows.observation, rows.action)
    errors = jnp.where(rows.is_trained[None], targets[None] - q_values, 0.0)

    seen = jax.lax.stop_gradient(rows)
    policy = network.policy(params.actor, seen.memory, seen.observation)
    drawn = tanh_gaussian.sample(policy, actor_key)
    actor_losses = _actor_losses(network, params, seen, drawn)
    entropy = -jax.lax.stop_gradient(drawn.log_probability)
    excess = jnp.mean(counted * (entropy - objective.target_entropy))
    parts = LossParts(
        critics=0.5 * jnp.mean(counted * jnp.sum(jnp.square(errors), axis=0)),
        actor=jnp.mean(counted * actor_losses),
        temperature=params.log_temperature * excess,
    )
    total = parts.critics + parts.actor + parts.temperature
    metrics = _metrics(
        parts, params, rows.is_trained, CriticErrors(q_values, targets, errors), entropy
    )
    priorities = _priorities(errors, rows.is_trained, num_sequences=weights.shape[0])
    return total, LossOutput(jax.lax.stop_gradient(priorities), metrics)


def _rows(
    objective: Objective,
    network: BoxNetwork,
    params: SacParams,
    target: CriticParams,
    sequence: Sequence,
) -> Transitions:
    # Without a memory nothing is stored of the carry, and what was done before is not looked at.
    carry = sequence.carry or AgentCarry((), jnp.zeros_like(sequence.steps.action[0]))
    sequence = sequence._replace(carry=carry)
    memory, target_memory = (
        unrolled_after_burn_in(network.memory, objective.burn_in, critics.memory, sequence)
        for critics in (params.critics, target)
    )
    steps = jax.tree.map(lambda leaf: leaf[objective.burn_in :], sequence.steps)
    return transitions(steps, memory, target_memory)


def _targets(
    objective: Objective,
    network: BoxNetwork,
    params: SacParams,
    target: CriticParams,
    rows: Transitions,
    key: Array,
) -> Array:
    # For a LAST row, what follows is of another episode, and its target means nothing.
    policy = network.policy(params.actor, rows.next_memory, rows.next_observation)
    drawn = tanh_gaussian.sample(policy, key)
    return soft_targets(
        rows.reward,
        rows.discount,
        network.q_values(target, rows.next_target_memory, rows.next_observation, drawn.action),
        drawn.log_probability,
        gamma=objective.gamma,
        temperature=jnp.exp(params.log_temperature),
    )


def _actor_losses(
    network: BoxNetwork, params: SacParams, rows: Transitions, drawn: TanhSample
) -> Array:
    # Critics and temperature are constants here: a gradient reaches the actor through `drawn`.
    constant = jax.lax.stop_gradient(params)
    q_values = network.q_values(constant.critics, rows.memory, rows.observation, drawn.action)
    temperature = jnp.exp(constant.log_temperature)
    return temperature * drawn.log_probability - jnp.min(q_values, axis=0)


def _priorities(errors: Array, is_trained: Array, *, num_sequences: int) -> Array:
    by_sequence = (-1, num_sequences)  # rows are in order of time
    sizes = jnp.mean(jnp.abs(errors), axis=0).reshape(by_sequence)
    return sequence_priority(sizes, is_trained.reshape(by_sequence))


def _metrics(
    parts: LossParts, params: SacParams, is_trained: Array, critics: CriticErrors, entropy: Array
) -> dict[str, Array]:
    num_trained = jnp.maximum(jnp.sum(is_trained, dtype=jnp.float32), 1.0)

    def mean(rows: Array) -> Array:
        return jnp.sum(jnp.where(is_trained, rows, 0.0)) / num_trained

    return {
        "critic_loss": parts.critics,
        "actor_loss": parts.actor,
        "temperature_loss": parts.temperature,
        "temperature": jnp.exp(params.log_temperature),
        "entropy": mean(entropy),
        "q_mean": mean(jnp.mean(critics.q_values, axis=0)),
        "target_mean": mean(critics.targets),
        "td_error_mean": mean(jnp.mean(jnp.abs(critics.errors), axis=0)),
        "td_error_max": jnp.max(jnp.abs(critics.errors)),
        "trained_fraction": jnp.mean(is_trained, dtype=jnp.float32),
    }
