"""SAC as pure functions (Haarnoja et al. 2018b); `SacConfig.build` makes an agent of them."""

import math
from collections.abc import Callable
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import optax

from seedrl.agents.agent import ActOutput
from seedrl.agents.gradient_update import LossOutput
from seedrl.errors import ConfigError
from seedrl.networks.box_module import BoxNetwork
from seedrl.rl import tanh_gaussian
from seedrl.rl.priorities import sequence_priority
from seedrl.rl.soft_q_learning import soft_targets
from seedrl.rl.tanh_gaussian import TanhSample
from seedrl.rl.target_network import copied
from seedrl.specs import BoxSpec, EnvSpec
from seedrl.types import Array, Sequence, StepType, StoredStep, TimeStep, Tree


class SacParams(NamedTuple):
    """What SAC learns.

    Attributes:
      actor: of the policy.
      critics: of both critics; their target is all that has a target.
      log_temperature: ln α, `[] float32`.
    """

    actor: Tree
    critics: Tree
    log_temperature: Array


class Objective(NamedTuple):
    """What is minimised on a batch.

    Attributes:
      gamma: discount of one step.
      target_entropy: H̄, in nats.
    """

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


class Transitions(NamedTuple):
    """The N = U * B trained rows of sequences, with what followed each.

    Attributes:
      observation, next_observation: trees of `[N, ...]`.
      action: `[N, D] float32`.
      reward: `[N] float32`, of that action.
      discount: `[N] float32`, 0 where the episode terminated with it.
      is_trained: `[N] bool`; False on LAST rows, whose action was ignored.
    """

    observation: Tree
    action: Array
    reward: Array
    discount: Array
    next_observation: Tree
    is_trained: Array


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


def behaviour(params: SacParams) -> Tree:
    """The actor alone acts."""
    return params.actor


def init_target(params: SacParams) -> Tree:
    """The critics alone have a target."""
    return copied(params.critics)


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
    actor: Tree,
    carry: tuple[()],
    timestep: TimeStep,
    exploration: Array,
    key: Array,
) -> ActOutput:
    """Actions `[B, *shape] float32` in [-1, 1]: tanh(μ + exploration σ ε).

    `timestep` has leaves `[B, ...]`. `exploration [B] float32` of 1 draws from the policy, of 0 it
    takes tanh(μ).
    """
    chex.assert_rank([timestep.step_type, exploration], 1)
    policy = network.policy(actor, timestep.observation)
    noise = exploration[:, None] * jax.random.normal(key, policy.mean.shape)
    action = jnp.tanh(policy.mean + jnp.exp(policy.log_std) * noise)
    return ActOutput(action.reshape(-1, *shape), carry, extras=())


def loss(
    objective: Objective,
    network: BoxNetwork,
    params: SacParams,
    target: Tree,
    sequence: Sequence,
    weights: Array,
    key: Array,
) -> tuple[Array, LossOutput]:
    """The losses of critics, actor and temperature, summed: each has a gradient for its part alone.

      J_Q = Σ_i ½ (Q_i(s, a) - y)²,  J_π = α ln π(a'|s) - min_i Q_i(s, a'),  J_α = ln α (H - H̄)

    Means over `U * B` rows; LAST rows count as 0. `sequence` has leaves `[U + 1, B, ...]`,
    `weights` is `[B] float32`. The gradient of J_α is with respect to ln α, as in the code of SAC's
    authors, where the paper has α.

    Source: Haarnoja et al. 2018b, equations 5, 7 and 18, https://arxiv.org/abs/1812.05905.
    """
    chex.assert_rank(weights, 1)
    target_key, actor_key = jax.random.split(key)
    rows = transitions(sequence.steps)
    counted = jnp.tile(weights, sequence.steps.action.shape[0] - 1) * rows.is_trained

    targets = _targets(objective, network, params, target, rows, target_key)
    q_values = network.q_values(params.critics, rows.observation, rows.action)
    errors = jnp.where(rows.is_trained[None], targets[None] - q_values, 0.0)

    drawn = tanh_gaussian.sample(network.policy(params.actor, rows.observation), actor_key)
    actor_losses = _actor_losses(network, params, rows.observation, drawn)
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


def _targets(
    objective: Objective,
    network: BoxNetwork,
    params: SacParams,
    target: Tree,
    rows: Transitions,
    key: Array,
) -> Array:
    # For a LAST row, what follows is of another episode, and its target means nothing.
    drawn = tanh_gaussian.sample(network.policy(params.actor, rows.next_observation), key)
    return soft_targets(
        rows.reward,
        rows.discount,
        network.q_values(target, rows.next_observation, drawn.action),
        drawn.log_probability,
        gamma=objective.gamma,
        temperature=jnp.exp(params.log_temperature),
    )


def _actor_losses(
    network: BoxNetwork, params: SacParams, observation: Tree, drawn: TanhSample
) -> Array:
    # Critics and temperature are constants here: a gradient reaches the actor through `drawn`.
    constant = jax.lax.stop_gradient(params)
    q_values = network.q_values(constant.critics, observation, drawn.action)
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


def transitions(steps: StoredStep) -> Transitions:
    """The transitions of sequences `[U + 1, B, ...]`, time first."""
    timestep = steps.timestep
    chex.assert_rank([timestep.step_type, timestep.reward, timestep.discount], 2)

    def flat(leaf: Array) -> Array:
        return leaf.reshape(-1, *leaf.shape[2:])

    def before(tree: Tree) -> Tree:
        return jax.tree.map(lambda leaf: flat(leaf[:-1]), tree)

    def after(tree: Tree) -> Tree:
        return jax.tree.map(lambda leaf: flat(leaf[1:]), tree)

    action = before(steps.action)
    return Transitions(
        observation=before(timestep.observation),
        action=action.reshape(action.shape[0], -1),
        reward=after(timestep.reward),
        discount=after(timestep.discount),
        next_observation=after(timestep.observation),
        is_trained=before(timestep.step_type) != StepType.LAST,
    )


def initial_priorities(steps: StoredStep) -> Array:
    """`[B] float32`, of sequences `[U + 1, B]`: none, or 0 where nothing can be learned.

    No critic acts, so the replay takes the mean of its own priorities for those of none (-1).
    """
    is_trained = steps.timestep.step_type[:-1] != StepType.LAST
    return jnp.where(jnp.any(is_trained, axis=0), -1.0, 0.0)
