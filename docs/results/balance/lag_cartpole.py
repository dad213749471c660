"""IMPALA on CartPole-v1 with a choice of its correction, for the experiment with old parameters.

docs/balance_experiments.md has the results.
"""

import dataclasses
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import optax

from configs import cartpole_impala
from seedrl.agents.agent import Agent
from seedrl.agents.check import build_network, policy_and_value_of
from seedrl.agents.gradient_update import LossOutput
from seedrl.agents.impala import ImpalaConfig
from seedrl.agents.inputs import inputs_of_sequence
from seedrl.agents.ppo import actor_critic_agent, policy_of
from seedrl.config import Config
from seedrl.networks.network import Network
from seedrl.rl.vtrace import vtrace
from seedrl.specs import ActionSpec, EnvSpec
from seedrl.types import Array, Sequence, Tree


@dataclass(frozen=True, kw_only=True)
class CorrectedConfig(ImpalaConfig):
    """IMPALA without normalization.

    Attributes:
      correction: vtrace: as IMPALA. ratios: only the policy gradient is multiplied by the clipped
        ratio, values are learned as if on policy. none: both as if on policy.
    """

    correction: Literal["vtrace", "ratios", "none"] = "vtrace"

    def build(self, spec: EnvSpec) -> Agent:
        network = build_network(self.network, spec, policy_and_value_of(spec))
        optimizer = optax.adam(
            self.learning_rate, b1=self.adam_b1, b2=self.adam_b2, eps=self.adam_epsilon
        )
        return actor_critic_agent(self, network, spec.action, optimizer, _loss)


def _loss(
    config: CorrectedConfig,
    network: Network,
    action_spec: ActionSpec,
    params: Tree,
    target: Tree,
    sequence: Sequence,
    weights: Array,
    key: Array,
    entropy_cost: float | Array,
) -> tuple[Array, LossOutput]:
    """As IMPALA's; a correction that is left out has ratios of 1."""
    del target, key
    steps, num_steps = sequence.steps, config.unroll
    output, _ = network.unroll(params, sequence.carry.network, inputs_of_sequence(sequence))
    policy = policy_of(action_spec, jax.tree.map(lambda leaf: leaf[:num_steps], output))
    log_policy = policy.log_probability(steps.action[:num_steps])
    acted = steps.extras.log_probability[:num_steps]
    log_ratios = jax.lax.stop_gradient(log_policy) - acted
    corrected = vtrace(
        log_ratios if config.correction == "vtrace" else jnp.zeros_like(log_ratios),
        output.value,
        steps.timestep._replace(reward=config.reward_scale * steps.timestep.reward),
        gamma=config.gamma,
        vtrace_lambda=config.vtrace_lambda,
        rho_bar=config.rho_bar,
        c_bar=config.c_bar,
        pg_rho_bar=config.pg_rho_bar,
    )
    advantages = corrected.advantages
    ratios = jnp.exp(jnp.where(corrected.is_trained, log_ratios, 0.0))
    if config.correction == "ratios":
        advantages = advantages * jnp.minimum(config.pg_rho_bar, ratios)
    trained = corrected.is_trained * weights[None]
    errors = corrected.targets - output.value[:num_steps]
    policy_loss = -jnp.mean(trained * log_policy * advantages)
    value_loss = 0.5 * jnp.mean(trained * jnp.square(errors))
    entropy = jnp.mean(trained * policy.entropy())
    total = policy_loss + config.value_cost * value_loss - entropy_cost * entropy
    metrics = {
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": entropy,
        "ratio_max": jnp.max(ratios),
    }
    return total, LossOutput(priorities=(), metrics=metrics)


def config() -> Config:
    found = cartpole_impala.config()
    own = {each.name: getattr(found.agent, each.name) for each in dataclasses.fields(ImpalaConfig)}
    return dataclasses.replace(found, agent=CorrectedConfig(**own))
