"""Double Q-learning: bootstrap values and temporal-difference errors."""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from seedrl.rl.returns import n_step_targets
from seedrl.rl.value_scaling import ValueScaling
from seedrl.types import Array, StepType, StoredStep


class TDErrors(NamedTuple):
    """Temporal-difference errors of U trained time steps."""

    errors: Array  # `[U, B] float32`, target minus prediction in scaled space; 0 if not trained
    targets: Array  # `[U, B] float32` in scaled space, gradient stopped; 0 if not trained
    is_trained: Array  # `[U, B] bool`; False on LAST, whose action was ignored


def action_values(q_values: Array, actions: Array) -> Array:
    """Q(s, a): `q_values [..., A] float32`, `actions [...] int32` -> `[...] float32`."""
    chex.assert_equal_shape_prefix([q_values, actions], actions.ndim)
    return jnp.take_along_axis(q_values, actions[..., None], axis=-1)[..., 0]


def n_step_td_errors(
    q_online: Array,
    q_target: Array,
    *,
    steps: StoredStep,
    n_steps: int,
    gamma: float,
    scaling: ValueScaling,
) -> TDErrors:
    """Errors of n-step double Q-learning with value rescaling.

      δ_t = h(Gⁿ_t) - Q_online(s_t, a_t),  G⁰_t = h⁻¹(Q_target(s_t, argmax_a Q_online(s_t, a)))

    `q_online` and `q_target` are `[T, B, A] float32`; of `steps [T, B]` observation, version and
    extras are not looked at. Errors are of the first T - n time steps; no gradient flows through
    the target.

    Source: Kapturowski et al. 2019, section 2.3.
    """
    chex.assert_rank(q_online, 3)
    chex.assert_equal_shape([q_online, q_target])
    chex.assert_equal_shape_prefix([q_online, q_target, steps.action], 2)
    num_trained = q_online.shape[0] - n_steps
    # G⁰: the online network chooses, the target network values (van Hasselt et al. 2016, equation
    # 4). Returns are summed in the space of rewards, and compared in the scaled space of Q-values.
    best = action_values(q_target, jnp.argmax(q_online, axis=-1))
    values = scaling.invert(best)
    returns = n_step_targets(steps.timestep, values, n_steps=n_steps, gamma=gamma)
    is_trained = steps.timestep.step_type[:num_trained] != StepType.LAST
    targets = jnp.where(is_trained, jax.lax.stop_gradient(scaling.apply(returns)), 0.0)
    predictions = action_values(q_online[:num_trained], steps.action[:num_trained])
    errors = jnp.where(is_trained, targets - predictions, 0.0)
    return TDErrors(errors=errors, targets=targets, is_trained=is_trained)
