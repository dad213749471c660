"""IMPALA: distributed actor-critic with V-trace (Espeholt et al. 2018).

From top to bottom: the configuration, the agent that it builds, acting, the loss, its metrics.
`seedrl.agents.ppo` has what it shares with PPO: some settings, the policy, most of the agent. The
correction for acting with older parameters is `seedrl.rl.vtrace`.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import chex
import jax
import jax.numpy as jnp
import optax

from seedrl.agents.agent import ActOutput, Agent
from seedrl.agents.check import build_network, policy_and_value_of
from seedrl.agents.gradient_update import LossOutput
from seedrl.agents.inputs import inputs_of_sequence
from seedrl.agents.normalization import seen_by_agent, with_normalization
from seedrl.agents.ppo import OnPolicyConfig, act, actor_critic_agent, policy_of
from seedrl.agents.window import WindowSpec
from seedrl.fields import (
    Decay,
    Fraction,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
)
from seedrl.networks.network import Network
from seedrl.rl.returns import scaled
from seedrl.rl.surrogate import divergence, mean_of
from seedrl.rl.vtrace import VTrace, vtrace
from seedrl.specs import ActionSpec, EnvSpec
from seedrl.types import Array, Sequence, Tree


@dataclass(frozen=True, kw_only=True)
class ImpalaConfig(OnPolicyConfig):
    """IMPALA. "Paper" is Espeholt et al. 2018, appendices D and G, "both papers" also PPO's.

    Its `replay` is a `seedrl.replay.queue.QueueConfig`; V-trace corrects for the updates between
    acting and learning. The loss is a mean over time steps, as in SEED RL and Acme. The paper sums,
    so its gradient norm and epsilon have another size.

    Attributes:
      unroll: trained time steps of a sequence. Paper: 20 for Atari, 100 for DMLab. One more
        follows, which bootstraps and is not trained; no two sequences share a time step.
      vtrace_lambda: lambda of V-trace. Paper: 1.
      rho_bar: upper limit of the importance ratio in temporal differences. Paper: 1.
      c_bar: upper limit of the importance ratio in traces. Paper: 1.
      pg_rho_bar: upper limit of the importance ratio in the policy gradient. Paper: 1.
      value_cost: weight of half the squared error of the value. Paper: 0.5.
      learning_rate: learning rate of Adam. SEED RL: 4.8e-4.
      adam_b1: decay of the mean gradient. 0, as in SEED RL and Acme, makes Adam the paper's RMSProp
        with a corrected start.
      adam_b2: decay of the mean squared gradient. The authors' code: 0.99, of RMSProp.
      adam_epsilon: epsilon of Adam. SEED RL: 3.125e-7.
      max_gradient_norm: gradients are scaled down to this global norm. Paper: 40, of a sum.
    """

    unroll: PositiveInt = 20
    vtrace_lambda: Fraction = 1.0
    rho_bar: PositiveFloat = 1.0
    c_bar: NonNegativeFloat = 1.0
    pg_rho_bar: NonNegativeFloat = 1.0
    value_cost: NonNegativeFloat = 0.5
    learning_rate: PositiveFloat = 4.8e-4
    adam_b1: Decay = 0.0
    adam_b2: Decay = 0.99
    adam_epsilon: PositiveFloat = 3.1e-7
    max_gradient_norm: PositiveFloat = 40.0

    @property
    def window(self) -> WindowSpec:
        # As PPO's.
        return WindowSpec(burn_in=0, unroll=self.unroll, bootstrap=1, stride=self.unroll + 1)

    def build(self, spec: EnvSpec) -> Agent:
        """The agent of a spec. Raises ConfigError for a network that does not fit."""
        normalization = self.normalization(spec)
        output = policy_and_value_of(spec)
        network = build_network(self.network, seen_by_agent(normalization), output)
        optimizer = optax.adam(
            self.learning_rate, b1=self.adam_b1, b2=self.adam_b2, eps=self.adam_epsilon
        )
        agent = actor_critic_agent(self, network, spec.action, optimizer, _loss)
        agent = agent._replace(act=functools.partial(_act, network, spec.action))
        return with_normalization(agent, normalization)


def _act(*arguments: Any) -> ActOutput:
    """As PPO acts; of what PPO stores only log μ(a), `[B] float32`, as extras."""
    output = act(*arguments)
    # Not V: V-trace takes it from the present parameters.
    return output._replace(extras=output.extras.log_probability)


def _loss(
    config: ImpalaConfig,
    network: Network,
    action_spec: ActionSpec,
    params: Tree,
    target: Tree,
    sequence: Sequence,
    weights: Array,
    key: Array,
    entropy_cost: float | Array,
    correct: Callable[..., VTrace] = vtrace,
) -> tuple[Array, LossOutput]:
    """L = -log π(a) A + value_cost ½ (v - V)² - entropy_cost H(π).

    Means over `U * B` time steps; LAST counts as 0. `sequence` has leaves `[U + 1, B, ...]`, its
    extras are log μ(a); `weights` is `[B] float32`. `correct` takes the arguments of
    `vtrace`, and may take its place in experiments.

    Source: Espeholt et al. 2018, section 4.2.
    """
    del target, key  # there is none; nothing is drawn
    steps, num_steps = sequence.steps, config.unroll
    chex.assert_shape(steps.extras, (num_steps + 1, *weights.shape))
    output, _ = network.unroll(params, sequence.carry.network, inputs_of_sequence(sequence))
    policy = policy_of(action_spec, jax.tree.map(lambda leaf: leaf[:num_steps], output))
    log_policy = policy.log_probability(steps.action[:num_steps])
    # log ρ. V-trace's targets and advantages are constants: a ratio has no gradient.
    log_ratios = jax.lax.stop_gradient(log_policy) - steps.extras[:num_steps]
    reward = scaled(steps.timestep.reward, config.reward_scale, config.reward_clip)
    rewarded = steps.timestep._replace(reward=reward)
    corrected = correct(
        log_ratios,
        output.value,
        rewarded,
        gamma=config.gamma,
        vtrace_lambda=config.vtrace_lambda,
        rho_bar=config.rho_bar,
        c_bar=config.c_bar,
        pg_rho_bar=config.pg_rho_bar,
    )
    # LAST counts as 0: its action was ignored.
    trained = corrected.is_trained * weights[None]
    errors = corrected.targets - output.value[:num_steps]
    policy_loss = -jnp.mean(trained * log_policy * corrected.advantages)
    value_loss = 0.5 * jnp.mean(trained * jnp.square(errors))
    entropy = jnp.mean(trained * policy.entropy())
    total = policy_loss + config.value_cost * value_loss - entropy_cost * entropy
    metrics = {
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        # Not the one in the loss, which is smaller by the share of LAST.
        "entropy": mean_of(policy.entropy(), corrected.is_trained),
        "value_mean": jnp.mean(output.value),
        **_metrics(config, log_ratios, corrected),
    }
    return total, LossOutput(priorities=(), metrics=metrics)


def _metrics(config: ImpalaConfig, log_ratios: Array, corrected: VTrace) -> dict[str, Array]:
    is_trained = corrected.is_trained
    log_ratios = jnp.where(is_trained, log_ratios, 0.0)  # ratios of 1
    ratios = jnp.exp(log_ratios)
    mean = functools.partial(mean_of, is_trained=is_trained)
    return {
        "advantage_size": mean(jnp.abs(corrected.advantages)),
        "behaviour_kl": mean(divergence(log_ratios)),
        "ratio_max": jnp.max(ratios),
        "ratio_clipped_fraction": mean(ratios > config.rho_bar),
        "ratio_low_fraction": mean(ratios < 0.5),
        "trained_fraction": jnp.mean(is_trained, dtype=jnp.float32),
    }
