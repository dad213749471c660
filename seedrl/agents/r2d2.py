"""R2D2: recurrent, replayed, distributed Q-learning (Kapturowski et al. 2019)."""

import functools
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import optax

from seedrl.agents.agent import ActOutput, Agent, LossOutput, WindowSpec
from seedrl.networks.network import Network, NetworkInput
from seedrl.networks.q_network import QNetworkConfig
from seedrl.rl.exploration import epsilon_greedy, epsilons
from seedrl.rl.q_learning import TDErrors, n_step_td_errors
from seedrl.rl.td_priority import sequence_priority
from seedrl.rl.value_scaling import ValueScaling, identity, signed_hyperbolic
from seedrl.specs import EnvSpec
from seedrl.types import Array, Sequence, StepType, StoredStep, TimeStep, Tree


class R2D2Carry(NamedTuple):
    """What R2D2 needs from before a time step.

    Attributes:
      network: the network's carry.
      previous_action: `[B] int32`, the action executed on the step before; ignored on FIRST.
    """

    network: Tree
    previous_action: Array


@dataclass(frozen=True, kw_only=True)
class R2D2Config:
    """R2D2. "Paper" is Kapturowski et al. 2019, table 2; where we differ, it is said.

    Attributes:
      network: a frozen dataclass whose `build(spec)` gives a `Network` of Q-values.
      burn_in: rows that only warm the carry up, without gradient. Paper: 40 (also 0 and 20).
      unroll: trained rows. Paper: sequences of m = 80, which we take as 80 trained rows after the
        burn-in, as Acme and SEED RL's Atari recipe do.
      n_steps: n of the n-step return. Paper: 5.
      stride: rows between the starts of neighbouring sequences. Paper: 40 (they overlap by half).
      gamma: discount of one step. Paper: 0.997.
      learning_rate: of Adam. Paper: 1e-4.
      learning_rate_decay_updates: updates over which the learning rate falls linearly to 0; 0 keeps
        it, as the paper does.
      adam_epsilon: Paper: 1e-3.
      max_gradient_norm: gradients are scaled down to this global norm. 80 is SEED RL's Atari recipe
        for 80 rows; its code's default is 40, and the paper names none. The loss sums over time, so
        a norm grows with `unroll`: scale both together.
      target_update_interval: updates between two copies to the target network. Paper: 2500.
      value_scaling: whether Q-values are rescaled by h. Paper: yes.
      value_scaling_epsilon: epsilon of h. Paper: 1e-3.
      priority_mix: eta: weight of the largest error, the rest is the mean's. Paper: 0.9.
      exploration_base: epsilon of the most exploratory slot. Ape-X and the paper: 0.4.
      exploration_alpha: exponents of epsilon range from 1 to 1 + alpha. Ape-X and the paper: 7.
      evaluation_epsilon: epsilon of evaluation slots. SEED RL: 1e-3.
    """

    network: Any = field(default_factory=QNetworkConfig)
    burn_in: int = 40
    unroll: int = 80
    n_steps: int = 5
    stride: int = 40
    gamma: float = 0.997
    learning_rate: float = 1e-4
    learning_rate_decay_updates: int = 0
    adam_epsilon: float = 1e-3
    max_gradient_norm: float = 80.0
    target_update_interval: int = 2500
    value_scaling: bool = True
    value_scaling_epsilon: float = 1e-3
    priority_mix: float = 0.9
    exploration_base: float = 0.4
    exploration_alpha: float = 7.0
    evaluation_epsilon: float = 1e-3

    def __post_init__(self) -> None:
        for name, (lowest, highest) in _RANGES.items():
            value = getattr(self, name)
            if not lowest <= value <= highest:
                limits = f"at least {lowest}" if highest == _NO_LIMIT else f"{lowest} to {highest}"
                raise ValueError(f"agent.{name}: expected {limits}, got {value}")
        for name in ("learning_rate", "adam_epsilon", "max_gradient_norm"):
            if not getattr(self, name) > 0:
                raise ValueError(f"agent.{name}: expected more than 0, got {getattr(self, name)}")

    @property
    def window(self) -> WindowSpec:
        """Sequences of `burn_in + unroll + n_steps` rows."""
        return WindowSpec(self.burn_in, self.unroll, self.n_steps, self.stride)

    def build(self, spec: EnvSpec) -> Agent:
        """The agent for environments of this spec; ValueError if the network cannot see it."""
        network = self.network.build(spec)
        return Agent(
            window=self.window,
            init=network.init,
            initial_carry=functools.partial(_initial_carry, network),
            act=functools.partial(_act, network),
            exploration=functools.partial(
                epsilons, base=self.exploration_base, alpha=self.exploration_alpha
            ),
            evaluation_exploration=self.evaluation_epsilon,
            init_target=functools.partial(jax.tree.map, jnp.copy),
            update_target=functools.partial(_update_target, self.target_update_interval),
            loss=functools.partial(_loss, self, network),
            initial_priorities=functools.partial(_initial_priorities, self),
            optimizer=self._optimizer(),
        )

    def _optimizer(self) -> optax.GradientTransformation:
        rate: optax.ScalarOrSchedule = self.learning_rate
        if self.learning_rate_decay_updates:
            rate = optax.linear_schedule(self.learning_rate, 0.0, self.learning_rate_decay_updates)
        clip = optax.clip_by_global_norm(self.max_gradient_norm)
        return optax.chain(clip, optax.adam(rate, eps=self.adam_epsilon))


_NO_LIMIT = float("inf")
_RANGES = {
    "burn_in": (0, _NO_LIMIT),
    "unroll": (1, _NO_LIMIT),
    "n_steps": (1, _NO_LIMIT),
    "stride": (1, _NO_LIMIT),
    "gamma": (0, 1),
    "learning_rate_decay_updates": (0, _NO_LIMIT),
    "target_update_interval": (1, _NO_LIMIT),
    "value_scaling_epsilon": (0, _NO_LIMIT),
    "priority_mix": (0, 1),
    "exploration_base": (0, 1),
    "exploration_alpha": (0, _NO_LIMIT),
    "evaluation_epsilon": (0, 1),
}


def _initial_carry(network: Network, batch_size: int) -> R2D2Carry:
    return R2D2Carry(network.initial_carry(batch_size), jnp.zeros((batch_size,), jnp.int32))


def _act(
    network: Network,
    params: Tree,
    carry: R2D2Carry,
    timestep: TimeStep,
    exploration: Array,
    key: Array,
) -> ActOutput:
    chex.assert_rank([timestep.step_type, timestep.reward, exploration], 1)
    inputs = NetworkInput(
        observation=timestep.observation,
        previous_action=carry.previous_action,
        reward=timestep.reward,
        is_first=timestep.step_type == StepType.FIRST,
    )
    one_row = jax.tree.map(lambda leaf: jnp.expand_dims(leaf, 0), inputs)
    q_values, network_carry = network.unroll(params, carry.network, one_row)
    q_values = q_values[0]
    action = epsilon_greedy(key, q_values, exploration)
    return ActOutput(action=action, carry=R2D2Carry(network_carry, action), extras=q_values)


def _update_target(interval: int, params: Tree, target: Tree, updates: Array) -> Tree:
    is_due = updates % interval == 0
    return jax.tree.map(lambda new, old: jnp.where(is_due, new, old), params, target)


def _loss(
    config: R2D2Config,
    network: Network,
    params: Tree,
    target: Tree,
    sequence: Sequence,
    weights: Array,
    key: Array,
) -> tuple[Array, LossOutput]:
    del key  # nothing is drawn
    steps = sequence.steps
    chex.assert_shape(steps.action, (config.window.length, None))
    chex.assert_shape(weights, (steps.action.shape[1],))
    q_online = _trained_q_values(config, network, params, sequence)
    q_target = jax.lax.stop_gradient(_trained_q_values(config, network, target, sequence))
    td = _td_errors(config, q_online, q_target, steps)
    losses = 0.5 * jnp.sum(jnp.square(td.errors), axis=0)
    loss = jnp.mean(weights * losses)
    priorities = sequence_priority(td.errors, td.is_trained, mix=config.priority_mix)
    output = LossOutput(jax.lax.stop_gradient(priorities), _metrics(loss, q_online, td))
    return loss, output


def _trained_q_values(
    config: R2D2Config, network: Network, params: Tree, sequence: Sequence
) -> Array:
    # `[unroll + n, B, A]`: the rows after the burn-in, from the carry that the burn-in leaves.
    inputs = _network_inputs(sequence)
    carry = sequence.carry.network
    if config.burn_in:
        burn_in = jax.tree.map(lambda leaf: leaf[: config.burn_in], inputs)
        _, carry = network.unroll(jax.lax.stop_gradient(params), carry, burn_in)
    rows = jax.tree.map(lambda leaf: leaf[config.burn_in :], inputs)
    q_values, _ = network.unroll(params, jax.lax.stop_gradient(carry), rows)
    return q_values


def _network_inputs(sequence: Sequence) -> NetworkInput:
    timestep, action = sequence.steps.timestep, sequence.steps.action
    return NetworkInput(
        observation=timestep.observation,
        previous_action=jnp.concatenate([sequence.carry.previous_action[None], action[:-1]]),
        reward=timestep.reward,
        is_first=timestep.step_type == StepType.FIRST,
    )


def _td_errors(config: R2D2Config, q_online: Array, q_target: Array, steps: StoredStep) -> TDErrors:
    after_burn_in = StoredStep(
        timestep=jax.tree.map(lambda leaf: leaf[config.burn_in :], steps.timestep),
        action=steps.action[config.burn_in :],
        version=(),
        extras=(),
    )
    return n_step_td_errors(
        q_online,
        q_target,
        steps=after_burn_in,
        n_steps=config.n_steps,
        gamma=config.gamma,
        scaling=_scaling(config),
    )


def _scaling(config: R2D2Config) -> ValueScaling:
    return signed_hyperbolic(config.value_scaling_epsilon) if config.value_scaling else identity()


def _metrics(loss: Array, q_online: Array, td: TDErrors) -> dict[str, Array]:
    num_trained = jnp.maximum(jnp.sum(td.is_trained, dtype=jnp.float32), 1.0)
    return {
        "loss": loss,
        "td_error_mean": jnp.sum(jnp.abs(td.errors)) / num_trained,
        "td_error_max": jnp.max(jnp.abs(td.errors)),
        "q_mean": jnp.mean(q_online),
        "q_max": jnp.max(q_online),
        "target_mean": jnp.sum(td.targets) / num_trained,
        "trained_fraction": jnp.mean(td.is_trained, dtype=jnp.float32),
    }


def _initial_priorities(config: R2D2Config, steps: StoredStep) -> Array:
    chex.assert_shape(steps.action, (config.window.length, None))
    q_acting = steps.extras[config.burn_in :]
    td = _td_errors(config, q_acting, q_acting, steps)
    return sequence_priority(td.errors, td.is_trained, mix=config.priority_mix)
