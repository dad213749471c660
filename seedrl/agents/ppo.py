"""PPO: proximal policy optimization (Schulman et al. 2017).

From top to bottom: the configuration, the agent that it builds, acting, advantages before the first
epoch (`seedrl.rl.gae`), the loss of a minibatch (`seedrl.rl.surrogate`).
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax

from seedrl.agents.agent import ActOutput, Agent, AgentState
from seedrl.agents.check import build_network, policy_and_value_of
from seedrl.agents.gradient_update import GradientUpdate, LinearDecay, LossOutput
from seedrl.agents.inputs import (
    AgentCarry,
    cut_into_chunks,
    initial_carry,
    inputs_of_sequence,
    inputs_of_step,
)
from seedrl.agents.normalization import NormalizationConfig, seen_by_agent, with_normalization
from seedrl.agents.window import WindowSpec
from seedrl.fields import Fraction, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from seedrl.networks.config import ActorCriticConfig
from seedrl.networks.network import GaussianAndValue, Network, PolicyAndValue
from seedrl.rl import surrogate
from seedrl.rl.distributions import Categorical, Gaussian, MultiCategorical
from seedrl.rl.gae import Advantages, gae
from seedrl.rl.returns import scaled
from seedrl.specs import ActionSpec, EnvSpec, MultiDiscreteSpec
from seedrl.types import Array, Sequence, TimeStep, Tree


@dataclass(frozen=True, kw_only=True)
class OnPolicyConfig(NormalizationConfig):
    """The settings that PPO and IMPALA share, with the same defaults.

    Attributes:
      network: a frozen dataclass whose `build(spec)` gives a `Network` of a `PolicyAndValue`, or,
        for a box of actions, of a `GaussianAndValue`.
      gamma: discount of one step. Both papers: 0.99.
      entropy_cost: weight of the entropy of the policy, which is maximised. Both papers: 0.01 for
        Atari.
      entropy_cost_decay_steps: environment steps over which `entropy_cost` falls linearly to 0; 0
        keeps it.
      reward_scale: factor of rewards when they are learned from. Values of hundreds, brought to
        about 1, are learned sooner; scale `entropy_cost` with it.
      reward_clip: limit of scaled rewards, clipped to plus or minus this; 0 does not clip. IMPALA's
        paper: 1 for Atari.
      learning_rate_decay_steps: environment steps over which the learning rate falls linearly to
        0; 0 keeps it. Both papers: the length of the run.
    """

    network: Any = field(default_factory=ActorCriticConfig)
    gamma: Fraction = 0.99
    entropy_cost: NonNegativeFloat = 0.01
    entropy_cost_decay_steps: NonNegativeInt = 0
    reward_scale: PositiveFloat = 1.0
    reward_clip: NonNegativeFloat = 0.0
    learning_rate_decay_steps: NonNegativeInt = 0


@dataclass(frozen=True, kw_only=True)
class PpoConfig(OnPolicyConfig):
    """PPO. "Paper" is Schulman et al. 2017, table 5 (Atari), "both papers" also IMPALA's.

    Its `replay` is a `seedrl.replay.queue.QueueConfig`. With `learning.schedule` synchronous it is
    the paper's; asynchronously it is APPO: acting goes on while a batch is learned from, and ratios
    are to the policy that acted.

    Attributes:
      unroll: trained time steps of a sequence. Paper: 128. One more follows, which bootstraps and
        is not trained; no two sequences share a time step.
      epochs: number of passes over each batch. Paper: 3.
      minibatches: number of equal parts of a batch, shuffled for each epoch. Must divide the number
        of sequences, or chunks, on each device. Paper: 4.
      chunk_steps: time steps of a sequence that stay together when minibatches are shuffled, a
        divisor of `unroll`. 0 keeps whole sequences. 1 shuffles single steps, as the paper's code
        does without memory, so that minibatches are more varied. See
        `seedrl.agents.inputs.cut_into_chunks`.
      gae_lambda: lambda of generalized advantage estimation. Paper: 0.95.
      clip: largest change of a probability ratio from 1 that is rewarded. Paper: 0.1.
      least_advantage_std: advantages of a minibatch are divided by their std, but at least by this.
        As long as all rewards are equal, advantages are only errors of the value; with a std of 1
        they would end exploration. Use 0.1 with `normalize_rewards`. DreamerV3 limits the scale of
        returns in the same way (Hafner et al. 2023, equation 7). Paper: 0.
      value_cost: weight of half the squared error of the value. Paper: 1, of the whole square.
      learning_rate: learning rate of Adam. Paper: 2.5e-4.
      adam_epsilon: epsilon of Adam. The paper's code: 1e-5.
      max_gradient_norm: gradients are scaled down to this global norm. The paper's code: 0.5.
    """

    unroll: PositiveInt = 127
    epochs: PositiveInt = 4
    minibatches: PositiveInt = 4
    chunk_steps: NonNegativeInt = 0
    gae_lambda: Fraction = 0.95
    clip: PositiveFloat = 0.2
    least_advantage_std: NonNegativeFloat = 0.0
    value_cost: NonNegativeFloat = 1.0
    learning_rate: PositiveFloat = 2.5e-4
    adam_epsilon: PositiveFloat = 1e-5
    max_gradient_norm: PositiveFloat = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.unroll % (self.chunk_steps or 1):
            raise ValueError(
                f"agent.chunk_steps: expected a divisor of agent.unroll ({self.unroll}), got "
                f"{self.chunk_steps}"
            )

    @property
    def window(self) -> WindowSpec:
        # The bootstrapping time step is not the first of the next sequence: a queue hands out each
        # time step once.
        return WindowSpec(burn_in=0, unroll=self.unroll, bootstrap=1, stride=self.unroll + 1)

    def build(self, spec: EnvSpec) -> Agent:
        """The agent of a spec. Raises ConfigError for a network that does not fit."""
        normalization = self.normalization(spec)
        output = policy_and_value_of(spec)
        network = build_network(self.network, seen_by_agent(normalization), output)
        optimizer = optax.adam(self.learning_rate, eps=self.adam_epsilon)
        agent = actor_critic_agent(self, network, spec.action, optimizer, _loss)
        agent = agent._replace(
            epochs=self.epochs,
            minibatches=self.minibatches,
            chunks=self.unroll // (self.chunk_steps or self.unroll),
            preprocess_batch=functools.partial(_preprocess_batch, self, network),
        )
        return with_normalization(agent, normalization)


def actor_critic_agent(
    config: Any,
    network: Network,
    action: ActionSpec,
    optimizer: optax.GradientTransformation,
    loss: Callable[..., tuple[Array, LossOutput]],
) -> Agent:
    """PPO's and IMPALA's agent: draws actions from its policy, and clips gradients."""
    update = GradientUpdate(
        loss=functools.partial(loss, config, network, action),
        optimizer=optax.chain(optax.clip_by_global_norm(config.max_gradient_norm), optimizer),
        learning_rate=LinearDecay(config.learning_rate, config.learning_rate_decay_steps),
        scheduled={
            "entropy_cost": LinearDecay(config.entropy_cost, config.entropy_cost_decay_steps)
        },
        may_train_nothing=True,
    )
    return Agent(
        window=config.window,
        init=network.init,
        initial_carry=functools.partial(initial_carry, network, action=action.array),
        act=functools.partial(act, network, action),
        exploration=functools.partial(np.ones, dtype=np.float32),  # draws from the policy
        evaluation_exploration=0.0,  # its likeliest action
        init_state=update.init_state,
        update=update,
    )


class Acted(NamedTuple):
    """Stored with each time step when acting: log μ(a) and V, `[B] float32`.

    On LAST and on the one that bootstraps too: so the advantages of a sequence follow from stored
    numbers only, and are the same in every epoch.
    """

    log_probability: Array
    value: Array


class Estimated(NamedTuple):
    """Extras of each time step `[U, B]` after `_preprocess_batch`: the same in all epochs."""

    acted: Acted
    estimated: Advantages


def policy_of(
    action: ActionSpec, output: PolicyAndValue | GaussianAndValue
) -> Categorical | MultiCategorical | Gaussian:
    """The policy of PPO and IMPALA over such actions, from the output of their network."""
    if not isinstance(output, PolicyAndValue):
        return Gaussian(output.mean, output.log_std)
    if isinstance(action, MultiDiscreteSpec):
        return MultiCategorical(output.logits, action.counts)
    return Categorical(output.logits)


def act(
    network: Network,
    action_spec: ActionSpec,
    params: Tree,
    carry: AgentCarry,
    timestep: TimeStep,
    exploration: Array,
    key: Array,
) -> ActOutput:
    """Actions of the policy of PPO and IMPALA, and `Acted` as extras."""
    chex.assert_rank([timestep.step_type, timestep.reward, exploration], 1)
    output, network_carry = network.unroll(params, carry.network, inputs_of_step(carry, timestep))
    output = jax.tree.map(lambda leaf: leaf[0], output)  # of the only time step
    policy = policy_of(action_spec, output)
    # Of a box as they were drawn, beyond [-1, 1] too: the log-probability is that of the draw.
    action = policy.draw(exploration, key).reshape(-1, *action_spec.array.shape)
    return ActOutput(
        action=action,
        carry=AgentCarry(network_carry, action),
        extras=Acted(policy.log_probability(action), output.value),
    )


def _preprocess_batch(
    config: PpoConfig, network: Network, state: AgentState, sequence: Sequence, weights: Array
) -> tuple[Sequence, Array]:
    """`[U + 1, B]` with `Acted` -> chunks `[P, U / P * B]`, whose extras are `Estimated`."""
    steps, num_steps = sequence.steps, config.unroll
    chex.assert_shape(steps.extras, (num_steps + 1, *weights.shape))
    reward = scaled(steps.timestep.reward, config.reward_scale, config.reward_clip)
    # Advantages of whole sequences, however short the chunks are.
    estimated = gae(
        steps.extras.value,
        steps.timestep._replace(reward=reward),
        gamma=config.gamma,
        gae_lambda=config.gae_lambda,
    )
    trained = jax.tree.map(lambda leaf: leaf[:num_steps], steps)
    trained = trained._replace(extras=Estimated(trained.extras, estimated))
    chunk_steps = config.chunk_steps or num_steps
    # The parameters before the update bring the recurrent state to later chunks.
    chunks = cut_into_chunks(network, state.params, chunk_steps, sequence._replace(steps=trained))
    return chunks, jnp.tile(weights, num_steps // chunk_steps)


def _loss(
    config: PpoConfig,
    network: Network,
    action_spec: ActionSpec,
    params: Tree,
    target: Tree,
    sequence: Sequence,
    weights: Array,
    key: Array,
    entropy_cost: float | Array,
) -> tuple[Array, LossOutput]:
    """L = -min(r A, clip(r, 1 ± ε) A) + value_cost ½ (V - target)² - entropy_cost H(π), r = π / μ.

    Means over the time steps that are not LAST. `sequence` has leaves `[P, B, ...]`, its extras are
    `Estimated`; `weights` is `[B] float32`. On several devices each normalises and averages over
    its own part of a minibatch.

    Source: Schulman et al. 2017, equations 7 and 9.
    """
    del target, key  # there is none; nothing is drawn
    acted, estimated = sequence.steps.extras
    output, _ = network.unroll(params, sequence.carry.network, inputs_of_sequence(sequence))
    policy = policy_of(action_spec, output)
    log_policy = policy.log_probability(sequence.steps.action)
    counts = estimated.is_trained
    # Of ignored actions 0: their ratio may be anything, and infinity times 0 is not 0.
    log_ratios = jnp.where(counts, log_policy - acted.log_probability, 0.0)
    # Those of a minibatch get mean 0 and std 1: not in the paper, but in its code. A sequence of
    # weight 0 only fills up the batch.
    advantages = surrogate.normalized(
        estimated.advantages,
        counts & (weights > 0)[None],
        least_std=config.least_advantage_std,
    )
    # Equation 7, then 9.
    gained = surrogate.clipped_surrogate(
        log_ratios, advantages, clip_low=config.clip, clip_high=config.clip
    )
    squares = jnp.square(output.value - estimated.targets)
    policy_loss = -surrogate.mean_of(weights[None] * gained, counts)
    value_loss = 0.5 * surrogate.mean_of(weights[None] * squares, counts)
    entropy = surrogate.mean_of(weights[None] * policy.entropy(), counts)
    total = policy_loss + config.value_cost * value_loss - entropy_cost * entropy
    metrics = {
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": entropy,
        **_metrics(config, log_ratios, estimated, acted.value),
    }
    return total, LossOutput(priorities=(), metrics=metrics)


def _metrics(
    config: PpoConfig, log_ratios: Array, estimated: Advantages, old_values: Array
) -> dict[str, Array]:
    counts = estimated.is_trained
    mean = functools.partial(surrogate.mean_of, is_trained=counts)

    def variance(values: Array) -> Array:
        return mean(jnp.square(values - mean(values)))

    ratios = jnp.exp(log_ratios)
    unexplained = variance(estimated.targets - old_values)
    return {
        "value_mean": mean(old_values),
        # Targets that are all alike have no variance to explain.
        "explained_variance": 1.0 - unexplained / jnp.maximum(variance(estimated.targets), 1e-8),
        "advantage_size": mean(jnp.abs(estimated.advantages)),
        "behaviour_kl": mean(surrogate.divergence(log_ratios)),
        "ratio_max": jnp.max(ratios),
        "clip_fraction": mean(jnp.abs(ratios - 1.0) > config.clip),
        "trained_fraction": jnp.mean(counts, dtype=jnp.float32),
    }
