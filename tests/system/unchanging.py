"""Agents whose parameters never change: what acting stored can be computed again in the end."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from seedrl.agents.agent import Agent, AgentState, UpdateOutput
from seedrl.agents.window import WindowSpec
from seedrl.specs import EnvSpec
from seedrl.types import Array, Sequence, Tree


def drawn_like(shapes: Tree) -> Tree:
    """Parameters of these shapes: rows that are added up give numbers of about the size of one."""
    random = np.random.default_rng(0)

    def draw(leaf: jax.ShapeDtypeStruct) -> np.ndarray:
        num_inputs = leaf.shape[0] if len(leaf.shape) > 1 else 100
        return (random.standard_normal(leaf.shape) * num_inputs**-0.5).astype(leaf.dtype)

    return jax.tree.map(draw, shapes)


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
        drawn = drawn_like(jax.eval_shape(agent.init, jax.random.key(0)))
        return agent._replace(
            init=lambda key: jax.tree.map(jnp.asarray, drawn),
            init_state=lambda params: AgentState(params, (), (), jnp.zeros((), jnp.int32)),
            update=update,
        )
