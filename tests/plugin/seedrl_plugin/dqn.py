"""A feed-forward DQN with a network of its own, written in plain JAX."""

import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import optax

from seedrl.agents.agent import ActOutput, Agent
from seedrl.agents.gradient_update import GradientUpdate, LossOutput
from seedrl.agents.window import WindowSpec
from seedrl.rl.exploration import epsilon_greedy, epsilons
from seedrl.specs import DiscreteSpec, EnvSpec
from seedrl.types import Array, Sequence, StepType, StoredStep, TimeStep, Tree


@dataclass(frozen=True, kw_only=True)
class DQNConfig:
    """DQN with prioritized replay (Mnih et al. 2015, Schaul et al. 2016).

    A sequence is one transition: the row that is trained and the row that bootstraps.
    """

    hidden_size: int = 32
    gamma: float = 0.95
    learning_rate: float = 1e-2
    target_update_interval: int = 50
    evaluation_epsilon: float = 0.0

    @property
    def window(self) -> WindowSpec:
        """One transition, starting on every step."""
        return WindowSpec(burn_in=0, unroll=1, bootstrap=1, stride=1)

    def build(self, spec: EnvSpec) -> Agent:
        """The agent. There is no carry: `()`."""
        update = GradientUpdate(
            functools.partial(_loss, self),
            optax.adam(self.learning_rate),
            init_target=functools.partial(jax.tree.map, jnp.copy),
            update_target=functools.partial(_update_target, self.target_update_interval),
        )
        return Agent(
            window=self.window,
            init=functools.partial(_init, self, spec),
            initial_carry=lambda batch_size: (),
            act=_act,
            exploration=epsilons,
            evaluation_exploration=self.evaluation_epsilon,
            init_state=update.init_state,
            update=update,
            initial_priorities=functools.partial(_initial_priorities, self),
        )


def _init(config: DQNConfig, spec: EnvSpec, key: Array) -> Tree:
    assert isinstance(spec.action, DiscreteSpec), "DQN needs discrete actions"
    num_inputs = sum(leaf.shape[0] for _, leaf in spec.leaves())
    keys = jax.random.split(key)
    return {
        "hidden": jax.random.normal(keys[0], (num_inputs, config.hidden_size)) * num_inputs**-0.5,
        "bias": jnp.zeros((1, config.hidden_size)),
        "output": jax.random.normal(keys[1], (config.hidden_size, spec.action.num_actions)) * 0.01,
    }


def _q_values(params: Tree, observation: Tree) -> Array:
    # Vector observations only: `[B, D]` leaves -> `[B, A]`.
    inputs = jnp.concatenate(jax.tree.leaves(observation), axis=-1)
    return jax.nn.relu(inputs @ params["hidden"] + params["bias"]) @ params["output"]


def _act(
    params: Tree, carry: Tree, timestep: TimeStep, exploration: Array, key: Array
) -> ActOutput:
    q_values = _q_values(params, timestep.observation)
    return ActOutput(epsilon_greedy(key, q_values, exploration), carry, q_values)


def _update_target(interval: int, params: Tree, target: Tree, updates: Array) -> Tree:
    is_due = updates % interval == 0
    return jax.tree.map(lambda new, old: jnp.where(is_due, new, old), params, target)


def _td_errors(config: DQNConfig, q_tm1: Array, q_t: Array, steps: StoredStep) -> Array:
    # An action taken on LAST was ignored: nothing is learned of it.
    is_trained = steps.timestep.step_type[0] != StepType.LAST
    value = jnp.max(q_t, axis=-1)
    target = steps.timestep.reward[1] + config.gamma * steps.timestep.discount[1] * value
    taken = jnp.take_along_axis(q_tm1, steps.action[0][:, None], axis=-1)[:, 0]
    return jnp.where(is_trained, jax.lax.stop_gradient(target) - taken, 0.0)


def _loss(
    config: DQNConfig, params: Tree, target: Tree, sequence: Sequence, weights: Array, key: Array
) -> tuple[Array, LossOutput]:
    del key
    before, after = (
        jax.tree.map(lambda leaf, row=row: leaf[row], sequence.steps.timestep.observation)
        for row in (0, 1)
    )
    errors = _td_errors(config, _q_values(params, before), _q_values(target, after), sequence.steps)
    loss = jnp.mean(weights * 0.5 * jnp.square(errors))
    priorities = jax.lax.stop_gradient(jnp.abs(errors))
    return loss, LossOutput(priorities, {"loss": loss, "td_error_mean": jnp.mean(priorities)})


def _initial_priorities(config: DQNConfig, steps: StoredStep) -> Array:
    q_values = steps.extras
    return jnp.abs(_td_errors(config, q_values[0], q_values[1], steps))
