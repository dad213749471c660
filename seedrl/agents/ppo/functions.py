"""PPO as pure functions (Schulman et al. 2017); `PpoConfig.build` makes an agent of them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import optax

from seedrl.agents.agent import ActOutput, Agent, AgentState, UpdateOutput
from seedrl.agents.gradient_update import LossOutput
from seedrl.agents.learning_rate import rate_of, with_schedule_of
from seedrl.agents.network_inputs import AgentCarry, inputs_of_row, inputs_of_sequence
from seedrl.agents.pieces import cut_into_pieces
from seedrl.agents.ppo.policies import Policy
from seedrl.networks.network import Network
from seedrl.rl import surrogate
from seedrl.rl.gae import Advantages, gae
from seedrl.rl.returns import scaled
from seedrl.types import Array, Sequence, TimeStep, Tree


class Acted(NamedTuple):
    """What is stored of each row when it is acted on.

    On LAST rows and on the row that bootstraps too: so the advantages of a sequence are known from
    what is stored alone, and are the same in every epoch.

    Attributes:
      log_probability: `[B] float32`, log μ(a).
      value: `[B] float32`, V.
    """

    log_probability: Array
    value: Array


class Estimated(NamedTuple):
    """What is known of each row `[U, B]` before a batch is learned from: the same in all passes.

    Attributes:
      acted: what was stored.
      estimated: what came of its action.
    """

    acted: Acted
    estimated: Advantages


class Objective(NamedTuple):
    """What is minimised on a batch; see `PpoConfig` for what is not said here.

    Attributes:
      unroll: U, its trained rows; one more bootstraps.
    """

    unroll: int
    gamma: float
    trace_lambda: float
    clip: float
    value_clip: float
    normalize_advantages: bool
    value_cost: float
    entropy_cost: float
    reward_scale: float
    reward_clip: float


def act(
    policy: Policy,
    network: Network,
    params: Tree,
    carry: AgentCarry,
    timestep: TimeStep,
    exploration: Array,
    key: Array,
) -> ActOutput:
    """Actions of the policy on one row, and `Acted` as extras.

    `timestep` has leaves `[B, ...]`. `exploration [B] float32` of 1 draws from the policy, of 0 it
    takes the most likely action.
    """
    chex.assert_rank([timestep.step_type, timestep.reward, exploration], 1)
    output, network_carry = network.unroll(params, carry.network, inputs_of_row(carry, timestep))
    said = jax.tree.map(lambda leaf: leaf[0], output)
    action = policy.drawn(said, exploration, key)
    return ActOutput(
        action=action,
        carry=AgentCarry(network_carry, action),
        extras=Acted(policy.log_probability(said, action), said.value),
    )


def before_batch(
    objective: Objective,
    network: Network,
    piece_rows: int,
    state: AgentState,
    sequence: Sequence,
    weights: Array,
) -> tuple[Sequence, Array]:
    """`[U + 1, B]` with `Acted` -> pieces `[P, U / P * B]`, whose extras are `Estimated`.

    Advantages are those of whole sequences, however short the pieces are.
    """
    steps, num_rows = sequence.steps, objective.unroll
    chex.assert_shape(steps.extras, (num_rows + 1, *weights.shape))
    trained = jax.tree.map(lambda leaf: leaf[:num_rows], steps)
    estimated = _advantages(objective, steps.extras.value, steps.timestep)
    trained = trained._replace(extras=Estimated(trained.extras, estimated))
    pieces = cut_into_pieces(network, state.params, piece_rows, sequence._replace(steps=trained))
    return pieces, jnp.tile(weights, num_rows // piece_rows)


def loss(
    objective: Objective,
    policy: Policy,
    network: Network,
    params: Tree,
    target: Tree,
    sequence: Sequence,
    weights: Array,
    key: Array,
) -> tuple[Array, LossOutput]:
    """Clipped surrogate, value loss and entropy: means over the rows that are not LAST.

    `sequence` has leaves `[P, B, ...]`, its extras are `Estimated`; `weights` is `[B] float32`. On
    several devices each normalises and averages over its own part of a minibatch.
    """
    del target, key  # there is none; nothing is drawn
    acted, estimated = sequence.steps.extras
    said, _ = network.unroll(params, sequence.carry.network, inputs_of_sequence(sequence))
    log_policy = policy.log_probability(said, sequence.steps.action)
    counts = estimated.is_trained
    # Of ignored actions 0: their ratio may be anything, and infinity times 0 is not 0.
    log_ratios = jnp.where(counts, log_policy - acted.log_probability, 0.0)
    advantages = estimated.advantages
    if objective.normalize_advantages:
        advantages = surrogate.normalized(advantages, counts)
    gained = surrogate.clipped_surrogate(log_ratios, advantages, objective.clip)
    squares = surrogate.clipped_square(
        said.value, acted.value, estimated.targets, objective.value_clip
    )
    policy_loss = -surrogate.mean_of(weights[None] * gained, counts)
    value_loss = 0.5 * surrogate.mean_of(weights[None] * squares, counts)
    entropy = surrogate.mean_of(weights[None] * policy.entropy(said), counts)
    total = policy_loss + objective.value_cost * value_loss - objective.entropy_cost * entropy
    metrics = {
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": entropy,
        **_metrics(objective, log_ratios, estimated, acted.value),
    }
    return total, LossOutput(priorities=(), metrics=metrics)


def _advantages(objective: Objective, values: Array, timestep: TimeStep) -> Advantages:
    reward = scaled(timestep.reward, objective.reward_scale, objective.reward_clip)
    return gae(
        values,
        timestep._replace(reward=reward),
        gamma=objective.gamma,
        trace_lambda=objective.trace_lambda,
    )


def _metrics(
    objective: Objective, log_ratios: Array, estimated: Advantages, old_values: Array
) -> dict[str, Array]:
    counts = estimated.is_trained

    def mean(rows: Array) -> Array:
        return surrogate.mean_of(rows, counts)

    def variance(rows: Array) -> Array:
        return mean(jnp.square(rows - mean(rows)))

    ratios = jnp.exp(log_ratios)
    unexplained = variance(estimated.targets - old_values)
    return {
        "value_mean": mean(old_values),
        "explained_variance": 1.0 - unexplained / jnp.maximum(variance(estimated.targets), 1e-8),
        "advantage_size": mean(jnp.abs(estimated.advantages)),
        "behaviour_kl": mean(surrogate.divergence(log_ratios)),
        "ratio_max": jnp.max(ratios),
        "clip_fraction": mean(jnp.abs(ratios - 1.0) > objective.clip),
        "trained_fraction": jnp.mean(counts, dtype=jnp.float32),
    }


def with_kl_stop(agent: Agent, kl_stop: float) -> Agent:
    """`agent`, whose updates stop once a minibatch's estimate of KL(μ, π) is above `kl_stop`.

    That minibatch and those that follow it in the same batch change nothing, but the learning rate
    falls as if they had: it is one of updates, each a whole batch. Its `extras`, `[] int32`, say
    which version's batch was stopped; -1 before the first.
    """

    def init_state(params: Tree) -> AgentState:
        return agent.init_state(params)._replace(extras=jnp.full((), -1, jnp.int32))

    def update(
        state: AgentState,
        sequence: Sequence,
        weights: Array,
        key: Array,
        mean: Callable[[Tree], Tree],
    ) -> tuple[AgentState, UpdateOutput]:
        updated, output = agent.update(state, sequence, weights, key, mean)
        is_far = mean(output.metrics["behaviour_kl"]) > kl_stop
        # All passes over a batch see the same version.
        has_stopped = is_far | (state.extras == state.updates)
        optimizer = with_schedule_of(state.optimizer, updated.optimizer)
        stopped = state._replace(extras=state.updates, optimizer=optimizer)
        new = jax.tree.map(lambda old, new: jnp.where(has_stopped, old, new), stopped, updated)
        metrics = {**output.metrics, "stopped_fraction": has_stopped.astype(jnp.float32)}
        return new, output._replace(metrics=metrics)

    return agent._replace(init_state=init_state, update=update)


def objective_of(config: Any) -> Objective:
    """What is minimised under a `PpoConfig`."""
    return Objective._make(getattr(config, name) for name in Objective._fields)


def learning_rate(config: Any) -> optax.ScalarOrSchedule:
    """That of a `PpoConfig`, at each step of the optimizer."""
    return rate_of(config, steps_per_update=config.epochs * config.minibatches)


def optimizer_of(config: Any) -> optax.GradientTransformation:
    """Adam on clipped gradients, as a `PpoConfig` has it."""
    clip = optax.clip_by_global_norm(config.max_gradient_norm)
    return optax.chain(clip, optax.adam(learning_rate(config), eps=config.adam_epsilon))
