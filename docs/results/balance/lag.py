"""IMPALA with a choice of its correction, for the experiment with old parameters.

docs/balance_experiments.md has the results.
"""

import dataclasses
import functools
from dataclasses import dataclass
from typing import Any, Literal

import jax.numpy as jnp

from configs import cartpole_impala
from seedrl.agents.agent import Agent
from seedrl.agents.gradient_update import GradientUpdate
from seedrl.agents.impala import ImpalaConfig
from seedrl.config import Config
from seedrl.rl.vtrace import VTrace, vtrace
from seedrl.specs import EnvSpec
from seedrl.types import Array

# What is corrected: whole V-trace, and otherwise the policy gradient.
CORRECTIONS = {"vtrace": (1.0, 0.0), "ratios": (0.0, 1.0), "none": (0.0, 0.0)}


def corrected(
    whole: float | Array,
    gradient: float | Array,
    log_ratios: Array,
    *arguments: Any,
    **settings: Any,
) -> VTrace:
    """V-trace if `whole` is 1; else as on policy, with clipped ratios if `gradient` is 1."""
    output = vtrace(whole * log_ratios, *arguments, **settings)
    clipped = jnp.minimum(settings["pg_rho_bar"], jnp.exp(gradient * log_ratios))
    return output._replace(advantages=clipped * output.advantages)


@dataclass(frozen=True, kw_only=True)
class CorrectedConfig(ImpalaConfig):
    """IMPALA without normalization.

    Attributes:
      correction: vtrace: IMPALA's. ratios: only the policy gradient is multiplied by the clipped
        ratio, values are learned as if on policy. none: both as if on policy.
    """

    correction: Literal["vtrace", "ratios", "none"] = "vtrace"

    def build(self, spec: EnvSpec) -> Agent:
        return with_correction(super().build(spec), *CORRECTIONS[self.correction])


def with_correction(agent: Agent, whole: float | Array, gradient: float | Array) -> Agent:
    """IMPALA's agent with another correction: see `corrected`."""
    assert isinstance(agent.update, GradientUpdate), "there is no normalization"
    correct = functools.partial(corrected, whole, gradient)
    loss = functools.partial(agent.update.loss, correct=correct)
    return agent._replace(update=agent.update._replace(loss=loss))


def config() -> Config:
    found = cartpole_impala.config()
    own = {each.name: getattr(found.agent, each.name) for each in dataclasses.fields(ImpalaConfig)}
    own |= {"gamma": 0.95, "entropy_cost": 0.01}
    return dataclasses.replace(found, agent=CorrectedConfig(**own))
