"""An agent that does not think: for measuring everything but the network."""

import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax

from seedrl.agents.agent import ActOutput, Agent
from seedrl.agents.gradient_update import GradientUpdate, LossOutput
from seedrl.agents.window import WindowSpec
from seedrl.specs import ActionSpec, DiscreteSpec, EnvSpec
from seedrl.types import Array, Sequence, StoredStep, TimeStep, Tree


@dataclass(frozen=True, kw_only=True)
class NullAgentConfig:
    """Acts at random, remembers nothing and learns nothing.

    Attributes:
      window: the sequences that its experience is cut into.
    """

    window: WindowSpec

    def build(self, spec: EnvSpec) -> Agent:
        """The agent, for any environment."""
        update = GradientUpdate(_loss, optax.identity())
        return Agent(
            window=self.window,
            init=lambda key: jnp.zeros(()),
            initial_carry=lambda batch_size: (),
            act=functools.partial(_act, spec.action),
            exploration=lambda slots: np.zeros(slots, np.float32),
            evaluation_exploration=0.0,
            init_state=update.init_state,
            update=update,
            initial_priorities=_initial_priorities,
        )


def _act(
    action: ActionSpec,
    params: Tree,
    carry: Tree,
    timestep: TimeStep,
    exploration: Array,
    key: Array,
) -> ActOutput:
    del params, exploration
    shape = (*timestep.step_type.shape, *action.array.shape)
    if isinstance(action, DiscreteSpec):
        actions = jax.random.randint(key, shape, 0, action.num_actions, jnp.int32)
    else:
        actions = jax.random.uniform(key, shape, jnp.float32, -1.0, 1.0)
    return ActOutput(actions, carry, ())


def _loss(
    params: Tree, target: Tree, sequence: Sequence, weights: Array, key: Array
) -> tuple[Array, LossOutput]:
    del target, key
    rewards = jnp.mean(sequence.steps.timestep.reward)
    return params * rewards, LossOutput(jnp.ones_like(weights), {})


def _initial_priorities(steps: StoredStep) -> Array:
    return jnp.ones(steps.action.shape[1], jnp.float32)
