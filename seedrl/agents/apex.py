"""Ape-X DQN: Q-learning from n-step transitions of prioritized replay (Horgan et al. 2018).

From top to bottom: the configuration, the loss, priorities. It acts as R2D2 does and
has the same errors: `seedrl.agents.r2d2.q_learning_agent`, `td_errors`.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import chex
import jax
import jax.numpy as jnp

from seedrl.agents.agent import Agent, no_carry
from seedrl.agents.check import build_network, num_actions_of, q_values_of
from seedrl.agents.gradient_update import LossOutput
from seedrl.agents.inputs import initial_carry, inputs_of_sequence
from seedrl.agents.normalization import seen_by_agent, with_normalization
from seedrl.agents.r2d2 import QLearningConfig, q_learning_agent, q_metrics, td_errors
from seedrl.agents.window import WindowSpec
from seedrl.errors import ConfigError
from seedrl.fields import (
    Fraction,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
)
from seedrl.networks.build import NetworkCarry
from seedrl.networks.config import QNetworkConfig
from seedrl.networks.network import Network, NetworkInput
from seedrl.rl.q_learning import TDErrors
from seedrl.rl.returns import steps_to_bootstrap
from seedrl.rl.value_scaling import ValueScaling, identity
from seedrl.specs import EnvSpec, has_mask
from seedrl.types import Array, Sequence, StoredStep, Tree

# Of a transition without an error.
_SMALLEST_PRIORITY = 1e-6


def feed_forward() -> QNetworkConfig:
    """The network of the paper: R2D2's without a core."""
    return QNetworkConfig(core="none")


@dataclass(frozen=True, kw_only=True)
class ApexConfig(QLearningConfig):
    """Ape-X DQN. "Paper" is Horgan et al. 2018, appendix C, "both papers" also R2D2's.

    Without memory: the observation, or stacked frames, must hold all that matters. In the paper
    replay holds 2 million steps, learns from 50,000 on, and has `replay.priority_exponent` 0.6 and
    `replay.importance_exponent` 0.4.

    Attributes:
      network: a frozen dataclass whose `build(spec)` gives a `Network` of Q-values without a
        recurrent core. Paper: dueling.
      earlier_steps: time steps before the trained one that its network sees: k - 1 if it stacks k
        frames. A network of your own that looks at the previous action needs one at least.
      n_steps: n of the n-step return. Paper: 3.
      gamma: discount of one step. Paper: 0.99.
      reward_clip: rewards, scaled, are clipped to plus or minus this; 0 clips none. Paper: 1 for
        Atari.
      learning_rate: learning rate of Adam, where the paper uses centred RMSProp. The paper, and
        Hessel et al. 2018, table 1, with Adam: 6.25e-5.
      adam_epsilon: epsilon of Adam. Hessel et al. 2018: 1.5e-4.
      max_gradient_norm: gradients are scaled down to this global norm. Paper: 40.
    """

    network: Any = field(default_factory=feed_forward)
    earlier_steps: NonNegativeInt = 0
    n_steps: PositiveInt = 3
    gamma: Fraction = 0.99
    reward_clip: NonNegativeFloat = 0.0
    learning_rate: PositiveFloat = 6.25e-5
    adam_epsilon: PositiveFloat = 1.5e-4
    max_gradient_norm: PositiveFloat = 40.0

    @property
    def window(self) -> WindowSpec:
        return WindowSpec(self.earlier_steps, unroll=1, bootstrap=self.n_steps, stride=1)

    scaling: ClassVar[ValueScaling] = identity()  # Q-values are expected returns

    def build(self, spec: EnvSpec) -> Agent:
        """The agent of a spec. Raises ConfigError for actions or a network that do not fit."""
        normalization = self.normalization(spec)
        q_values = q_values_of(num_actions_of(spec, "Ape-X"))
        network = build_network(self.network, seen_by_agent(normalization), q_values)
        _require_no_memory(network, self.earlier_steps)
        agent = q_learning_agent(self, network, _loss, _initial_priorities)
        return with_normalization(agent._replace(stored_carry=no_carry), normalization)


def _require_no_memory(network: Network, earlier_steps: int) -> None:
    carry = jax.eval_shape(lambda: network.initial_carry(1))
    frames = carry.frames if isinstance(carry, NetworkCarry) else ()
    if len(jax.tree.leaves(carry)) > len(frames):
        raise ConfigError(
            "agent.network: Ape-X learns from single transitions, the network carries more from "
            'step to step than frames; set agent.network.core to "none", or choose R2D2'
        )
    needed = max((leaf.shape[1] for leaf in frames), default=0)
    if needed > earlier_steps:
        raise ConfigError(
            f"agent.earlier_steps: expected at least {needed}, for the network stacks "
            f"{needed + 1} frames, got {earlier_steps}"
        )


def _loss(
    config: ApexConfig,
    network: Network,
    params: Tree,
    target: Tree,
    sequence: Sequence,
    weights: Array,
    key: Array,
) -> tuple[Array, LossOutput]:
    """L = mean_B w ½ δ² (Horgan et al. 2018, section 3.1), and priorities `[B] float32`.

    `sequence` has leaves `[T, B, ...]` with `T = window.length`; its carry is not used. `weights`
    is `[B] float32`.
    """
    del key  # nothing is drawn
    steps, window = sequence.steps, config.window
    chex.assert_shape(steps.action, (window.length, None))
    chex.assert_shape(weights, (steps.action.shape[1],))
    # Without a core, and with the earlier steps to fill its frames, any recurrent state will do.
    carry = initial_carry(network, weights.shape[0])
    inputs = inputs_of_sequence(sequence._replace(carry=carry))
    # The network is evaluated on the trained time step, and on the one that its return bootstraps
    # from: of n + 1 time steps only two cost a forward pass.
    start = jnp.full(weights.shape, window.burn_in, jnp.int32)
    after = steps.timestep.step_type[window.burn_in :]
    end = start + steps_to_bootstrap(after, n_steps=window.bootstrap)

    # Double Q-learning: at the end the online network chooses, the target network values.
    def q_values(params: Tree, step: Array) -> Array:
        return _q_values_at(network, params, inputs, step, earlier_steps=window.burn_in)

    q_start = q_values(params, start)
    q_end = q_values(jax.lax.stop_gradient(params), end)
    # Of all steps after the first, the return uses only the one that it bootstraps from.
    td = td_errors(
        config,
        jnp.stack([q_start] + [q_end] * window.bootstrap),
        jnp.stack([q_values(target, end)] * (1 + window.bootstrap)),
        steps,
        reward_clip=config.reward_clip,
    )
    mean = jnp.mean(weights * 0.5 * jnp.square(td.errors[0]))
    output = LossOutput(
        jax.lax.stop_gradient(_priorities(td)),
        q_metrics(q_start[None], td, is_masked=has_mask(inputs.observation)),
    )
    return mean, output


def _q_values_at(
    network: Network, params: Tree, inputs: NetworkInput, step: Array, *, earlier_steps: int
) -> Array:
    # `[B, A]` of time step `step [B] int32` of each sequence, with its stacked frames.
    index = step[None] + jnp.arange(-earlier_steps, 1)[:, None]
    columns = jnp.arange(step.shape[0])[None]
    seen: NetworkInput = jax.tree.map(lambda leaf: jnp.asarray(leaf)[index, columns], inputs)
    carry = network.initial_carry(step.shape[0])
    if earlier_steps:
        # Their Q-values are dropped, so that the compiled program does not compute them.
        _, carry = network.unroll(params, carry, jax.tree.map(lambda leaf: leaf[:-1], seen))
    q_values, _ = network.unroll(params, carry, jax.tree.map(lambda leaf: leaf[-1:], seen))
    return q_values[0]


def _priorities(td: TDErrors) -> Array:
    # p = |δ| (section 3.1). 0, for a time step that is not trained, would mean that nothing can
    # ever be learned from a transition.
    sizes = jnp.maximum(jnp.abs(td.errors[0]), _SMALLEST_PRIORITY)
    return jnp.where(td.is_trained[0], sizes, 0.0)


def _initial_priorities(config: ApexConfig, steps: StoredStep) -> Array:
    """`[B] float32`, of sequences `[T, B]`, from the Q-values stored when acting."""
    chex.assert_shape(steps.action, (config.window.length, None))
    # Both the action and its value are the acting network's, which has no target.
    q_acting = steps.extras[config.earlier_steps :]
    td = td_errors(config, q_acting, q_acting, steps, reward_clip=config.reward_clip)
    return _priorities(td)
