"""R2D2: recurrent, replayed, distributed Q-learning (Kapturowski et al. 2019).

From top to bottom: the configuration, the agent that it builds, acting, the loss, priorities. An
update is this file and eight more: `seedrl.agents.inputs` unrolls the network, and stops the
gradient of the burn-in; `seedrl.rl.q_learning`, `returns` and `value_scaling` have the errors,
`priorities` the priority and the importance weights; `seedrl.agents.gradient_update` steps down the
gradient and copies to the target network; `seedrl.replay.buffer` gathers the sequences, each with
the recurrent state that acting stored; `learner/learning/learn_step.py` calls all of it.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import chex
import jax
import jax.numpy as jnp
import optax

from seedrl.agents.agent import ActOutput, Agent
from seedrl.agents.check import build_network, num_actions_of, q_values_of
from seedrl.agents.gradient_update import (
    GradientUpdate,
    LinearDecay,
    LossOutput,
    copied,
    periodic_copy,
)
from seedrl.agents.inputs import AgentCarry, initial_carry, inputs_of_step, unrolled_after_burn_in
from seedrl.agents.masks import legal_actions
from seedrl.agents.normalization import NormalizationConfig, seen_by_agent, with_normalization
from seedrl.agents.window import WindowSpec
from seedrl.fields import Fraction, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from seedrl.networks.config import QNetworkConfig
from seedrl.networks.network import Network
from seedrl.rl.exploration import epsilon_greedy, epsilons
from seedrl.rl.priorities import sequence_priority
from seedrl.rl.q_learning import TDErrors, n_step_td_errors
from seedrl.rl.returns import scaled
from seedrl.rl.surrogate import mean_of
from seedrl.rl.value_scaling import ValueScaling, identity, signed_hyperbolic
from seedrl.specs import EnvSpec, has_mask
from seedrl.types import Array, Sequence, StoredStep, TimeStep, Tree


@dataclass(frozen=True, kw_only=True)
class QLearningConfig(NormalizationConfig):
    """The settings that R2D2 and Ape-X share, with the same defaults.

    Attributes:
      reward_scale: factor of rewards when they are learned from: Q-values that differ by ones are
        learned sooner than those that differ by hundredths. Both papers: 1.
      learning_rate_decay_steps: environment steps over which the learning rate falls linearly to
        0; 0 keeps it, as both papers do.
      target_update_interval: updates between two copies to the target network. Both papers: 2500.
      exploration_base: epsilon of the most exploratory slot. Both papers: 0.4.
      exploration_alpha: exponents of epsilon range from 1 to 1 + alpha. Both papers: 7.
      epsilon_decay_steps: environment steps over which the epsilon of each slot falls linearly from
        1 to its own, as DQN's does; 0 starts with its own, as both papers do.
      evaluation_epsilon: epsilon of evaluation slots. SEED RL: 1e-3.
    """

    reward_scale: PositiveFloat = 1.0
    learning_rate_decay_steps: NonNegativeInt = 0
    target_update_interval: PositiveInt = 2500
    exploration_base: Fraction = 0.4
    exploration_alpha: NonNegativeFloat = 7.0
    epsilon_decay_steps: NonNegativeInt = 0
    evaluation_epsilon: Fraction = 1e-3


@dataclass(frozen=True, kw_only=True)
class R2D2Config(QLearningConfig):
    """R2D2. "Paper" is Kapturowski et al. 2019, table 2, "both papers" also Ape-X's.

    Attributes:
      network: a frozen dataclass whose `build(spec)` gives a `Network` of Q-values.
      burn_in: time steps that only bring the recurrent state up to date, without gradient. Paper:
        40 (also 0 and 20).
      unroll: trained time steps, after the burn-in. Paper: 80.
      n_steps: n of the n-step return. Paper: 5.
      stride: time steps between the starts of neighbouring sequences. Paper: 40 (they overlap by
        half).
      gamma: discount of one step. Paper: 0.997.
      learning_rate: learning rate of Adam. Paper: 1e-4.
      adam_epsilon: epsilon of Adam. Paper: 1e-3.
      max_gradient_norm: gradients are scaled down to this global norm. 80 is SEED RL's Atari recipe
        for 80 steps. Paper: Ape-X's, 40. It grows with `unroll`: scale both together.
      value_scaling: rescale Q-values by h. Paper: yes.
      value_scaling_epsilon: epsilon of h. Paper: 1e-3.
      priority_eta: weight of the largest error in a priority; the mean error has the rest. Paper:
        0.9.
    """

    network: Any = field(default_factory=QNetworkConfig)
    burn_in: NonNegativeInt = 40
    unroll: PositiveInt = 80
    n_steps: PositiveInt = 5
    stride: PositiveInt = 40
    gamma: Fraction = 0.997
    learning_rate: PositiveFloat = 1e-4
    adam_epsilon: PositiveFloat = 1e-3
    max_gradient_norm: PositiveFloat = 80.0
    value_scaling: bool = True
    value_scaling_epsilon: NonNegativeFloat = 1e-3
    priority_eta: Fraction = 0.9

    @property
    def window(self) -> WindowSpec:
        return WindowSpec(self.burn_in, self.unroll, self.n_steps, self.stride)

    @property
    def scaling(self) -> ValueScaling:
        return signed_hyperbolic(self.value_scaling_epsilon) if self.value_scaling else identity()

    def build(self, spec: EnvSpec) -> Agent:
        """The agent of a spec. Raises ConfigError for actions or a network that do not fit."""
        normalization = self.normalization(spec)
        q_values = q_values_of(num_actions_of(spec, "R2D2"))
        network = build_network(self.network, seen_by_agent(normalization), q_values)
        agent = q_learning_agent(self, network, _loss, _initial_priorities)
        return with_normalization(agent, normalization)


def q_learning_agent(
    config: Any,
    network: Network,
    loss: Callable[..., tuple[Array, LossOutput]],
    initial_priorities: Callable[[Any, StoredStep], Array],
) -> Agent:
    """R2D2's and Ape-X's agent: epsilon-greedy, with a target network and clipped gradients."""
    optimizer = optax.adam(config.learning_rate, eps=config.adam_epsilon)
    update = GradientUpdate(
        loss=functools.partial(loss, config, network),
        optimizer=optax.chain(optax.clip_by_global_norm(config.max_gradient_norm), optimizer),
        learning_rate=LinearDecay(config.learning_rate, config.learning_rate_decay_steps),
        init_target=copied,
        update_target=functools.partial(periodic_copy, config.target_update_interval),
    )
    return Agent(
        window=config.window,
        init=network.init,
        initial_carry=functools.partial(initial_carry, network),
        act=functools.partial(_act, network),
        exploration=functools.partial(
            epsilons, base=config.exploration_base, alpha=config.exploration_alpha
        ),
        evaluation_exploration=config.evaluation_epsilon,
        init_state=update.init_state,
        update=update,
        initial_priorities=functools.partial(initial_priorities, config),
        exploration_decay_steps=config.epsilon_decay_steps,
    )


def _act(
    network: Network,
    params: Tree,
    carry: AgentCarry,
    timestep: TimeStep,
    exploration: Array,
    key: Array,
) -> ActOutput:
    """Epsilon-greedy actions; the Q-values `[B, A] float32` are stored as extras."""
    chex.assert_rank([timestep.step_type, timestep.reward, exploration], 1)
    q_values, network_carry = network.unroll(params, carry.network, inputs_of_step(carry, timestep))
    q_values = q_values[0]  # of the only time step
    legal = legal_actions(timestep.observation)
    action = epsilon_greedy(key, q_values, exploration, legal)
    return ActOutput(action=action, carry=AgentCarry(network_carry, action), extras=q_values)


def _loss(
    config: R2D2Config,
    network: Network,
    params: Tree,
    target: Tree,
    sequence: Sequence,
    weights: Array,
    key: Array,
) -> tuple[Array, LossOutput]:
    """L = mean_B w Σ_t ½ δ_t², and priorities `[B] float32`.

    `sequence` has leaves `[T, B, ...]` with `T = window.length`, `weights` is `[B] float32`.

    Source: Kapturowski et al. 2019, section 2.3: n-step double Q-learning on rescaled values, from
    sequences of prioritized replay.
    """
    del key  # nothing is drawn
    steps = sequence.steps
    chex.assert_shape(steps.action, (config.window.length, None))
    chex.assert_shape(weights, (steps.action.shape[1],))
    # Both networks unroll the burn-in from the stored state, each with its own parameters (section
    # 3). No gradient flows through it (stopped in `inputs`), and none through the target network.
    q_online = unrolled_after_burn_in(network, config.burn_in, params, sequence)
    q_target = unrolled_after_burn_in(network, config.burn_in, target, sequence)
    q_target = jax.lax.stop_gradient(q_target)
    td = td_errors(config, q_online, q_target, steps)
    # The sum over time is the paper's: the norm of a gradient grows with `unroll`.
    losses = 0.5 * jnp.sum(jnp.square(td.errors), axis=0)
    mean = jnp.mean(weights * losses)
    # p = η max_t |δ_t| + (1 - η) mean_t |δ_t| (section 2.3).
    priorities = sequence_priority(td.errors, td.is_trained, eta=config.priority_eta)
    is_masked = has_mask(steps.timestep.observation)
    output = LossOutput(
        jax.lax.stop_gradient(priorities), q_metrics(q_online, td, is_masked=is_masked)
    )
    return mean, output


def td_errors(
    config: Any, q_online: Array, q_target: Array, steps: StoredStep, *, reward_clip: float = 0.0
) -> TDErrors:
    """δ of the U trained time steps, `[U, B]`, of R2D2 and Ape-X.

    `q_online` and `q_target` are `[U + n, B, A] float32`, of all time steps after the burn-in;
    `steps` is `[T, B]`. By default no reward is clipped: h makes values of any size learnable.
    """
    reward = scaled(steps.timestep.reward, config.reward_scale, reward_clip)
    # Without what errors do not need: observations are most of a sequence.
    timestep = steps.timestep._replace(reward=reward, observation=())
    after_burn_in: StoredStep = jax.tree.map(
        lambda leaf: leaf[config.window.burn_in :],
        steps._replace(timestep=timestep, version=(), extras=()),
    )
    return n_step_td_errors(
        q_online,
        q_target,
        steps=after_burn_in,
        n_steps=config.n_steps,
        gamma=config.gamma,
        scaling=config.scaling,
    )


def q_metrics(q_online: Array, td: TDErrors, *, is_masked: bool) -> dict[str, Array]:
    """Metrics of R2D2 and Ape-X for a batch; `q_online` is `[T, B, A]`."""
    # The mean would be -inf with forbidden actions in it.
    counts = q_online > -jnp.inf if is_masked else None  # all without a mask
    return {
        "td_error_mean": mean_of(jnp.abs(td.errors), td.is_trained),
        "td_error_max": jnp.max(jnp.abs(td.errors)),
        "q_mean": jnp.mean(q_online, where=counts),
        "q_max": jnp.max(q_online),
        "target_mean": mean_of(td.targets, td.is_trained),
        "trained_fraction": jnp.mean(td.is_trained, dtype=jnp.float32),
    }


def _initial_priorities(config: R2D2Config, steps: StoredStep) -> Array:
    """`[B] float32`, of sequences `[T, B]`, from the Q-values stored when acting.

    Source: Horgan et al. 2018, section 3: acting computes them, so that no new sequence has to wait
    at the largest priority until it is first drawn.
    """
    chex.assert_shape(steps.action, (config.window.length, None))
    # The same function of the errors as in the loss, with the acting network as its own target.
    q_acting = steps.extras[config.burn_in :]
    td = td_errors(config, q_acting, q_acting, steps)
    return sequence_priority(td.errors, td.is_trained, eta=config.priority_eta)
