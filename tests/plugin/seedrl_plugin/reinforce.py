"""REINFORCE (Williams 1992) with a linear policy, on policy."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax

from seedrl.agents.agent import ActOutput, Agent
from seedrl.agents.gradient_update import GradientUpdate, LossOutput
from seedrl.agents.window import WindowSpec
from seedrl.types import StepType


@dataclass(frozen=True, kw_only=True)
class ReinforceConfig:
    """Unrolls of `unroll` rows follow each other without overlap."""

    unroll: int = 16
    window = property(lambda self: WindowSpec(0, self.unroll, 0, self.unroll))

    def build(self, spec):
        update = GradientUpdate(_loss, optax.adam(0.03))
        shape = spec.observation.shape[0], spec.action.num_actions
        return Agent(
            self.window,
            init=lambda key: jnp.zeros(shape),
            initial_carry=lambda batch_size: (),
            act=_act,
            exploration=np.ones,
            evaluation_exploration=0.0,
            init_state=update.init_state,
            update=update,
        )


def _act(params, carry, timestep, exploration, key):
    logits = timestep.observation @ params
    action = jnp.where(exploration > 0, jax.random.categorical(key, logits), logits.argmax(-1))
    return ActOutput(action.astype(jnp.int32), carry, ())


def _surprise(params, observation, action):
    logits = observation @ params
    return optax.softmax_cross_entropy_with_integer_labels(logits, action)


def returns(timestep):
    """The discounted rewards after each row, to the end of its episode or of the unroll."""

    def back(later, row):
        return row[0] + row[1] * later, later

    decay = 0.9 * timestep.discount * (timestep.step_type != StepType.LAST)
    return jax.lax.scan(back, 0 * decay[0], (timestep.reward, decay), reverse=True)[1]


def _loss(params, target, sequence, weights, key):
    timestep, action = sequence.steps.timestep, sequence.steps.action
    surprises = _surprise(params, timestep.observation, action)
    is_trained = timestep.step_type != StepType.LAST  # what was done there was ignored
    loss = jnp.mean(weights * jnp.sum(is_trained * surprises * returns(timestep), axis=0))
    return loss, LossOutput((), {})
