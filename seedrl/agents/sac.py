"""SAC: soft actor-critic with automatic temperature (Haarnoja et al. 2018b).

From top to bottom: the configuration, the agent that it builds, its parameters, acting, the loss of
its three parts, the transitions of a sequence, priorities. Targets are `seedrl.rl.soft_q`.
"""

import functools
import math
from dataclasses import dataclass, field
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax

from seedrl.agents.agent import ActOutput, Agent, no_carry, whole_carry
from seedrl.agents.gradient_update import GradientUpdate, LinearDecay, LossOutput, copied
from seedrl.agents.inputs import AgentCarry, initial_carry, inputs_of_step, unrolled_after_burn_in
from seedrl.agents.normalization import NormalizationConfig, seen_by_agent, with_normalization
from seedrl.agents.window import WindowSpec
from seedrl.errors import ConfigError
from seedrl.fields import (
    Fraction,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveFraction,
    PositiveInt,
)
from seedrl.networks.config import BoxNetworkConfig
from seedrl.networks.sac import BoxNetwork, CriticParams
from seedrl.rl.priorities import sequence_priority
from seedrl.rl.soft_q import soft_targets
from seedrl.rl.surrogate import mean_of
from seedrl.specs import BoxSpec, EnvSpec
from seedrl.types import Array, Sequence, StepType, StoredStep, TimeStep, Tree


@dataclass(frozen=True, kw_only=True)
class SacConfig(NormalizationConfig):
    """SAC, for actions of a box. "Paper" is Haarnoja et al. 2018b, appendix D.

    With a recurrent core (`network.core`) sequences start from the recurrent state of acting, and a
    gradient goes back as far as `unroll` time steps. Replay is uniform in the paper: set
    `replay.priority_exponent` to 0; with others it is prioritized by the critics' errors.

    Attributes:
      network: the actor, the critics and their memory.
      burn_in: time steps that only bring the memory's stored state up to date, without gradient. 0
        without a recurrent core.
      unroll: transitions of a sequence, one after another; sequences share none. More than 1 makes
        storing cheaper, and the transitions of a batch less varied.
      gamma: discount of one step. Paper: 0.99.
      actor_learning_rate: learning rate of Adam for the actor. Paper: 3e-4.
      critic_learning_rate: learning rate of Adam for both critics. Paper: 3e-4.
      temperature_learning_rate: learning rate of Adam for the logarithm of the temperature; 0 keeps
        the temperature. Paper: 3e-4.
      learning_rate_decay_steps: environment steps over which all three rates fall linearly to 0; 0
        keeps them, as the paper does. The metric `learning_rate` is then the actor's.
      initial_temperature: first value of alpha, the weight of the entropy; with `--init-from` it is
        the other run's. The authors' code: 1.
      target_entropy: entropy that the temperature aims at, in nats, for actions in [-1, 1]; None is
        minus the number of elements of an action. Paper: the same.
      tau: part of the way that target critics go to the critics at each update. Paper: 0.005.
    """

    network: BoxNetworkConfig = field(default_factory=BoxNetworkConfig)
    burn_in: NonNegativeInt = 0
    unroll: PositiveInt = 1
    gamma: Fraction = 0.99
    actor_learning_rate: PositiveFloat = 3e-4
    critic_learning_rate: PositiveFloat = 3e-4
    temperature_learning_rate: NonNegativeFloat = 3e-4
    learning_rate_decay_steps: NonNegativeInt = 0
    initial_temperature: PositiveFloat = 1.0
    target_entropy: float | None = None
    tau: PositiveFraction = 0.005

    @property
    def window(self) -> WindowSpec:
        return WindowSpec(self.burn_in, self.unroll, bootstrap=1, stride=self.unroll)

    def build(self, spec: EnvSpec) -> Agent:
        """The agent of a spec. Raises ConfigError for actions or a network that do not fit."""
        if not (isinstance(spec.action, BoxSpec) and spec.action.is_bounded.all()):
            raise ConfigError(
                "agent: SAC takes actions of a Box with bounds, the environment has "
                f"{spec.action}; choose IMPALA or PPO"
            )
        shape = spec.action.shape
        normalization = self.normalization(spec)
        network = self.network.build(seen_by_agent(normalization))
        # The usual guess: -1 nat for each number of an action, of which a uniform one has ln 2.
        entropy = -math.prod(shape) if self.target_entropy is None else self.target_entropy
        rates = SacParams(
            self.actor_learning_rate, self.critic_learning_rate, self.temperature_learning_rate
        )
        update = GradientUpdate(
            loss=functools.partial(_loss, self, entropy, network),
            # Adam for each part of the parameters, at a learning rate of its own.
            optimizer=optax.partition(
                {name: optax.adam(rate) for name, rate in rates._asdict().items()},
                SacParams(*SacParams._fields),
            ),
            learning_rate=LinearDecay(self.actor_learning_rate, self.learning_rate_decay_steps),
            # Only the critics have a target, which goes τ of the way to them at every update:
            # θ' + τ (θ - θ') (Lillicrap et al. 2016, section 3).
            init_target=lambda params: copied(params.critics),
            update_target=lambda params, target, updates: optax.incremental_update(
                params.critics, target, self.tau
            ),
        )
        has_memory = bool(jax.tree.leaves(jax.eval_shape(lambda: network.memory.initial_carry(1))))
        agent = Agent(
            window=self.window,
            init=functools.partial(_init, network, self.initial_temperature),
            initial_carry=functools.partial(
                initial_carry, network.memory, action=spec.action.array
            ),
            act=functools.partial(_act, network, shape),
            exploration=functools.partial(np.ones, dtype=np.float32),  # draws from the policy
            evaluation_exploration=0.0,  # tanh(μ)
            init_state=update.init_state,
            update=update,
            initial_priorities=functools.partial(_initial_priorities, self.burn_in),
            stored_carry=whole_carry if has_memory else no_carry,
            actor_params=lambda params: ActorParams(params.actor, params.critics.memory),
        )
        return with_normalization(agent, normalization)


class SacParams(NamedTuple):
    """Of the policy, of both critics and their memory (`CriticParams`), and ln α, `[] float32`."""

    actor: Tree
    critics: Tree
    log_temperature: Array


class ActorParams(NamedTuple):
    """Parameters that SAC acts with: the actor, and the critics' memory, which it sees too."""

    actor: Tree
    memory: Tree


class Transitions(NamedTuple):
    """The N = U * B trained time steps of sequences, each with the one after it."""

    observation: Tree  # `[N, ...]`
    memory: Tree  # `[N, H]`, output of the critics' memory, or `()`
    action: Array  # `[N, D] float32`
    reward: Array  # `[N] float32`, of that action
    discount: Array  # `[N] float32`, 0 if the episode terminated with it
    next_observation: Tree
    next_memory: Tree
    next_target_memory: Tree  # of the target critics
    is_trained: Array  # `[N] bool`; False on LAST, whose action was ignored


def _init(network: BoxNetwork, initial_temperature: float, key: Array) -> SacParams:
    actor_key, critic_key = jax.random.split(key)
    return SacParams(
        network.init_actor(actor_key),
        network.init_critics(critic_key),
        jnp.float32(math.log(initial_temperature)),
    )


def _act(
    network: BoxNetwork,
    shape: tuple[int, ...],
    actor_params: ActorParams,
    carry: AgentCarry,
    timestep: TimeStep,
    exploration: Array,
    key: Array,
) -> ActOutput:
    """Actions `[B, *shape] float32` in [-1, 1]: tanh(μ + exploration σ ε)."""
    chex.assert_rank([timestep.step_type, exploration], 1)
    inputs = inputs_of_step(carry, timestep)
    memory, next_carry = network.memory.unroll(actor_params.memory, carry.network, inputs)
    memory = jax.tree.map(lambda leaf: leaf[0], memory)
    policy = network.policy(actor_params.actor, memory, timestep.observation)
    noise = exploration[:, None] * jax.random.normal(key, policy.mean.shape)
    action = jnp.tanh(policy.mean + jnp.exp(policy.log_std) * noise).reshape(-1, *shape)
    return ActOutput(action, AgentCarry(next_carry, action), extras=())


def _loss(
    config: SacConfig,
    target_entropy: float,
    network: BoxNetwork,
    params: SacParams,
    target: CriticParams,
    sequence: Sequence,
    weights: Array,
    key: Array,
) -> tuple[Array, LossOutput]:
    """The losses of critics, actor and temperature, summed; each has a gradient only for its part.

    Means over `U * B` time steps; LAST counts as 0. `sequence` has leaves `[T, B, ...]` with
    `T = burn_in + U + 1`, `weights` is `[B] float32`.

    Source: Haarnoja et al. 2018b, https://arxiv.org/abs/1812.05905.
    """
    chex.assert_rank(weights, 1)
    target_key, actor_key = jax.random.split(key)
    trained = _transitions(config, network, params, target, sequence)
    counted = jnp.tile(weights, trained.reward.shape[0] // weights.shape[0]) * trained.is_trained

    # y = r + γ d (min_i Q'_i(s', a') - α ln π(a'|s')), a' ~ π (equations 3, 5). After a LAST step
    # another episode follows; its target is masked below.
    policy = network.policy(params.actor, trained.next_memory, trained.next_observation)
    drawn = policy.sample(target_key)
    next_q_values = network.q_values(
        target, trained.next_target_memory, trained.next_observation, drawn.action
    )
    targets = soft_targets(
        trained.reward,
        trained.discount,
        next_q_values,
        drawn.log_probability,
        gamma=config.gamma,
        temperature=jnp.exp(params.log_temperature),
    )
    # J_Q = Σ_i ½ (Q_i(s, a) - y)² (equation 5). It alone has a gradient for the memory.
    q_values = network.q_values(params.critics, trained.memory, trained.observation, trained.action)
    errors = jnp.where(trained.is_trained[None], targets[None] - q_values, 0.0)
    critic_loss = 0.5 * jnp.mean(counted * jnp.sum(jnp.square(errors), axis=0))

    # J_π = α ln π(a|s) - min_i Q_i(s, a), a ~ π (equation 7). Memory, like observations, and the
    # critics and temperature are constants here: a gradient reaches the actor through `drawn`.
    seen, constant = jax.lax.stop_gradient((trained, params))
    drawn = network.policy(params.actor, seen.memory, seen.observation).sample(actor_key)
    values = network.q_values(constant.critics, seen.memory, seen.observation, drawn.action)
    temperature = jnp.exp(constant.log_temperature)
    actor_losses = temperature * drawn.log_probability - jnp.min(values, axis=0)
    actor_loss = jnp.mean(counted * actor_losses)

    # J_α = ln α (H - H̄) (equation 18), with respect to ln α, as in the authors' code, where the
    # paper has α.
    entropy = -jax.lax.stop_gradient(drawn.log_probability)
    excess = jnp.mean(counted * (entropy - target_entropy))
    temperature_loss = params.log_temperature * excess

    mean = functools.partial(mean_of, is_trained=trained.is_trained)
    metrics = {
        "critic_loss": critic_loss,
        "actor_loss": actor_loss,
        "temperature_loss": temperature_loss,
        "temperature": jnp.exp(params.log_temperature),
        "entropy": mean(entropy),
        "q_mean": mean(jnp.mean(q_values, axis=0)),
        "target_mean": mean(targets),
        "td_error_mean": mean(jnp.mean(jnp.abs(errors), axis=0)),
        "td_error_max": jnp.max(jnp.abs(errors)),
        "trained_fraction": jnp.mean(trained.is_trained, dtype=jnp.float32),
    }
    by_sequence = (-1, weights.shape[0])  # in order of time
    priorities = sequence_priority(
        jnp.mean(jnp.abs(errors), axis=0).reshape(by_sequence),
        trained.is_trained.reshape(by_sequence),
    )
    total = critic_loss + actor_loss + temperature_loss
    return total, LossOutput(jax.lax.stop_gradient(priorities), metrics)


def _transitions(
    config: SacConfig,
    network: BoxNetwork,
    params: SacParams,
    target: CriticParams,
    sequence: Sequence,
) -> Transitions:
    # Without a memory no recurrent state is stored, and the previous action is not used.
    carry = sequence.carry or AgentCarry((), jnp.zeros_like(sequence.steps.action[0]))
    sequence = sequence._replace(carry=carry)
    memory, target_memory = (
        unrolled_after_burn_in(network.memory, config.burn_in, critics.memory, sequence)
        for critics in (params.critics, target)
    )
    steps = jax.tree.map(lambda leaf: leaf[config.burn_in :], sequence.steps)
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
        memory=before(memory),
        action=action.reshape(action.shape[0], -1),
        # A time step holds the consequence of the action before it.
        reward=after(timestep.reward),
        discount=after(timestep.discount),
        next_observation=after(timestep.observation),
        next_memory=after(memory),
        next_target_memory=after(target_memory),
        is_trained=before(timestep.step_type) != StepType.LAST,
    )


def _initial_priorities(burn_in: int, steps: StoredStep) -> Array:
    # `[B] float32`, of sequences `[T, B]`: 0 if nothing can be learned, or -1 for none. No critic
    # acts, so replay gives such a sequence the mean of its own priorities.
    is_trained = steps.timestep.step_type[burn_in:-1] != StepType.LAST
    return jnp.where(jnp.any(is_trained, axis=0), -1.0, 0.0)
