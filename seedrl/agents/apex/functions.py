"""Ape-X DQN as pure functions (Horgan et al. 2018); `ApexConfig.build` makes an agent of them.

It acts as R2D2 does, and stores the same: the Q-values of every row.
"""

from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import optax

from seedrl.agents.gradient_update import LossOutput
from seedrl.agents.learning_rate import rate_of
from seedrl.agents.network_inputs import initial_carry, inputs_of_sequence
from seedrl.agents.r2d2_functions import metrics_of
from seedrl.agents.window import WindowSpec
from seedrl.errors import ConfigError
from seedrl.networks.build import NetworkCarry
from seedrl.networks.network import Network, NetworkInput
from seedrl.rl.q_learning import TDErrors, n_step_td_errors
from seedrl.rl.returns import rows_to_bootstrap, scaled
from seedrl.rl.value_scaling import ValueScaling, identity, signed_hyperbolic
from seedrl.types import Array, Sequence, StoredStep, Tree

# Of a transition without an error: 0 would say that nothing can ever be learned of it.
_SMALLEST_PRIORITY = 1e-6


class Objective(NamedTuple):
    """What is minimised on a transition.

    Attributes:
      window: its rows; `burn_in` rows come before the trained one, `bootstrap` is n.
      gamma: discount of one step.
      scaling: how Q-values are rescaled.
      reward_scale, reward_clip: see `seedrl.rl.returns.scaled`.
    """

    window: WindowSpec
    gamma: float
    scaling: ValueScaling
    reward_scale: float
    reward_clip: float


def objective_of(config: Any) -> Objective:
    """That of an `ApexConfig`."""
    return Objective(
        window=config.window,
        gamma=config.gamma,
        scaling=(
            signed_hyperbolic(config.value_scaling_epsilon) if config.value_scaling else identity()
        ),
        reward_scale=config.reward_scale,
        reward_clip=config.reward_clip,
    )


def optimizer_of(config: Any) -> optax.GradientTransformation:
    """Centred RMSProp or Adam on clipped gradients, as an `ApexConfig` has it."""
    rate = rate_of(config)
    if config.optimizer == "adam":
        optimizer = optax.adam(rate, eps=config.optimizer_epsilon)
    else:
        optimizer = optax.chain(
            _scale_by_deviation(config.rmsprop_decay, config.optimizer_epsilon),
            optax.scale_by_learning_rate(rate),
        )
    return optax.chain(optax.clip_by_global_norm(config.max_gradient_norm), optimizer)


def _scale_by_deviation(decay: float, epsilon: float) -> optax.GradientTransformation:
    """`optax.scale_by_stddev`, g / √(v + ε), for gradients that hardly change as well.

    Their variance v is the difference of two numbers that are nearly equal. Rounding may make it
    negative, and optax's result NaN: a gradient of 3 does after some updates.
    """
    moments = optax.scale_by_stddev(decay, epsilon)

    def update(
        gradients: optax.Updates, state: optax.OptState, params: optax.Params | None = None
    ) -> tuple[optax.Updates, optax.OptState]:
        _, state = moments.update(gradients, state, params)

        def scaled_by(gradient: Array, mean: Array, mean_square: Array) -> Array:
            variance = jnp.maximum(mean_square - jnp.square(mean), 0.0)
            return gradient * jax.lax.rsqrt(variance + epsilon)

        return jax.tree.map(scaled_by, gradients, state.mu, state.nu), state

    return optax.GradientTransformation(moments.init, update)


def require_no_memory(network: Network, earlier_rows: int) -> None:
    """Raises ConfigError for a network whose Q-values depend on more than `earlier_rows` rows."""
    carry = jax.eval_shape(lambda: network.initial_carry(1))
    frames = carry.frames if isinstance(carry, NetworkCarry) else ()
    if len(jax.tree.leaves(carry)) > len(frames):
        raise ConfigError(
            "agent.network: Ape-X learns from single transitions, the network carries more from "
            'row to row than frames; set agent.network.core to "none", or choose R2D2'
        )
    needed = max((leaf.shape[1] for leaf in frames), default=0)
    if needed > earlier_rows:
        raise ConfigError(
            f"agent.earlier_rows: expected at least {needed}, for the network stacks "
            f"{needed + 1} frames, got {earlier_rows}"
        )


def loss(
    objective: Objective,
    network: Network,
    params: Tree,
    target: Tree,
    sequence: Sequence,
    weights: Array,
    key: Array,
) -> tuple[Array, LossOutput]:
    """Weighted mean over B of half the squared n-step errors; priorities `[B] float32`.

    `sequence` has leaves `[T, B, ...]` with `T = window.length`; its carry is not looked at.
    `weights` is `[B] float32`. The network is evaluated on the trained row, and on the one row that
    its return bootstraps from.
    """
    del key  # nothing is drawn
    steps, window = sequence.steps, objective.window
    chex.assert_shape(steps.action, (window.length, None))
    chex.assert_shape(weights, (steps.action.shape[1],))
    # Without a core, and with the earlier rows to fill its frames, any carry will do.
    carry = initial_carry(network, weights.shape[0])
    inputs = inputs_of_sequence(sequence._replace(carry=carry))
    start = jnp.full(weights.shape, window.burn_in, jnp.int32)
    after = steps.timestep.step_type[window.burn_in :]
    end = start + rows_to_bootstrap(after, n_steps=window.bootstrap)

    def q_values(params: Tree, row: Array) -> Array:
        return _q_values_at(network, params, inputs, row, earlier_rows=window.burn_in)

    q_start = q_values(params, start)
    q_end = q_values(jax.lax.stop_gradient(params), end)
    # Of all rows after the first, the return looks at none but the one that it bootstraps from.
    td = _td_errors(
        objective,
        jnp.stack([q_start] + [q_end] * window.bootstrap),
        jnp.stack([q_values(target, end)] * (1 + window.bootstrap)),
        steps,
    )
    mean = jnp.mean(weights * 0.5 * jnp.square(td.errors[0]))
    output = LossOutput(jax.lax.stop_gradient(_priorities(td)), metrics_of(q_start[None], td))
    return mean, output


def _q_values_at(
    network: Network, params: Tree, inputs: NetworkInput, row: Array, *, earlier_rows: int
) -> Array:
    """Q-values `[B, A]` of row `row [B] int32` of each sequence, with its own stack of frames."""
    index = row[None] + jnp.arange(-earlier_rows, 1)[:, None]
    columns = jnp.arange(row.shape[0])[None]
    seen: NetworkInput = jax.tree.map(lambda leaf: jnp.asarray(leaf)[index, columns], inputs)
    carry = network.initial_carry(row.shape[0])
    if earlier_rows:
        # Their Q-values are not asked for, so that the compiled program does not compute them.
        _, carry = network.unroll(params, carry, jax.tree.map(lambda leaf: leaf[:-1], seen))
    q_values, _ = network.unroll(params, carry, jax.tree.map(lambda leaf: leaf[-1:], seen))
    return q_values[0]


def _td_errors(
    objective: Objective, q_online: Array, q_target: Array, steps: StoredStep
) -> TDErrors:
    """Errors `[1, B]` from Q-values `[1 + n, B, A]` of the trained row and those after it."""
    timestep = steps.timestep
    reward = scaled(timestep.reward, objective.reward_scale, objective.reward_clip)
    rows = jax.tree.map(
        lambda leaf: leaf[objective.window.burn_in :],
        steps._replace(
            timestep=timestep._replace(reward=reward, observation=()), version=(), extras=()
        ),
    )
    return n_step_td_errors(
        q_online,
        q_target,
        steps=rows,
        n_steps=objective.window.bootstrap,
        gamma=objective.gamma,
        scaling=objective.scaling,
    )


def _priorities(td: TDErrors) -> Array:
    sizes = jnp.maximum(jnp.abs(td.errors[0]), _SMALLEST_PRIORITY)
    return jnp.where(td.is_trained[0], sizes, 0.0)


def initial_priorities(objective: Objective, steps: StoredStep) -> Array:
    """`[B] float32`, of sequences `[T, B]`, from the Q-values stored when acting.

    Both the action and its value are the acting network's, which has no target.
    """
    chex.assert_shape(steps.action, (objective.window.length, None))
    q_acting = steps.extras[objective.window.burn_in :]
    return _priorities(_td_errors(objective, q_acting, q_acting, steps))
