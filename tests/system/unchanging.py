"""Agents whose parameters never change: what acting stored can be computed again in the end."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from seedrl.agents.agent import Agent, AgentState, UpdateOutput
from seedrl.agents.window import WindowSpec
from seedrl.specs import EnvSpec
from seedrl.types import Array, Sequence
from tests.seedrl.random_parameters import random_parameters


@dataclass(frozen=True, kw_only=True)
class Unchanging:
    """An agent with updates that leave its parameters as they are, for prioritized replay.

    Attributes:
      agent: acts.
      priorities: of an update, `sequence -> [B] float32`; () leaves those in the replay.
    """

    agent: Any
    priorities: Callable[[Sequence], Array | tuple[()]] = lambda sequence: ()

    @property
    def window(self) -> WindowSpec:
        """That of the agent."""
        window: WindowSpec = self.agent.window
        return window

    def build(self, spec: EnvSpec) -> Agent:
        """The agent with other functions for learning."""
        agent: Agent = self.agent.build(spec)

        def update(
            state: AgentState, sequence: Sequence, weights: Any, key: Any, mean: Any
        ) -> tuple[AgentState, UpdateOutput]:
            del weights, key, mean
            priorities = self.priorities(sequence)
            return state, UpdateOutput({}, guarded=jnp.zeros(()), priorities=priorities)

        # Drawn here, because programs that draw matrices take long to compile.
        drawn = random_parameters(agent.init)
        return agent._replace(
            init=lambda key: jax.tree.map(jnp.asarray, drawn),
            init_state=lambda params: AgentState(params, (), (), jnp.zeros((), jnp.int32)),
            update=update,
        )
