"""R2D2 as pure functions (Kapturowski et al. 2019); `R2D2Config.build` makes an agent of them."""

from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import optax

from seedrl.agents.agent import ActOutput
from seedrl.agents.gradient_update import LossOutput
from seedrl.agents.learning_rate import rate_of
from seedrl.agents.network_inputs import AgentCarry, inputs_of_row, unrolled_after_burn_in
from seedrl.agents.window import WindowSpec
from seedrl.networks.network import Network
from seedrl.rl.exploration import epsilon_greedy
from seedrl.rl.priorities import sequence_priority
from seedrl.rl.q_learning import TDErrors, n_step_td_errors
from seedrl.rl.returns import scaled
from seedrl.rl.value_scaling import ValueScaling
from seedrl.types import Array, Sequence, StoredStep, TimeStep, Tree


class Objective(NamedTuple):
    """What is minimised on a sequence, and how a sequence's priority follows from its errors.

    Attributes:
      window: its rows; `bootstrap` is n of the n-step return.
      gamma: discount of one step.
      reward_scale: rewards are multiplied by this.
      scaling: how Q-values are rescaled.
      priority_mix: eta: weight of the largest error, the rest is the mean's.
    """

    window: WindowSpec
    gamma: float
    reward_scale: float
    scaling: ValueScaling
    priority_mix: float


def optimizer_of(config: Any) -> optax.GradientTransformation:
    """Adam on clipped gradients, as an `R2D2Config` has it."""
    clip = optax.clip_by_global_norm(config.max_gradient_norm)
    return optax.chain(clip, optax.adam(rate_of(config), eps=config.adam_epsilon))


def act(
    network: Network,
    params: Tree,
    carry: AgentCarry,
    timestep: TimeStep,
    exploration: Array,
    key: Array,
) -> ActOutput:
    """Epsilon-greedy actions on one row; the Q-values `[B, A] float32` are stored as extras.

    `timestep` has leaves `[B, ...]`, `exploration [B] float32` is epsilon.
    """
    chex.assert_rank([timestep.step_type, timestep.reward, exploration], 1)
    q_values, network_carry = network.unroll(params, carry.network, inputs_of_row(carry, timestep))
    q_values = q_values[0]
    action = epsilon_greedy(key, q_values, exploration)
    return ActOutput(action=action, carry=AgentCarry(network_carry, action), extras=q_values)


def loss(
    objective: Objective,
    network: Network,
    params: Tree,
    target: Tree,
    sequence: Sequence,
    weights: Array,
    key: Array,
) -> tuple[Array, LossOutput]:
    """Weighted mean over B of half the summed squared n-step errors; priorities `[B] float32`.

    `sequence` has leaves `[T, B, ...]` with `T = window.length`, `weights` is `[B] float32`.
    """
    del key  # nothing is drawn
    steps = sequence.steps
    chex.assert_shape(steps.action, (objective.window.length, None))
    chex.assert_shape(weights, (steps.action.shape[1],))
    burn_in = objective.window.burn_in
    q_online = unrolled_after_burn_in(network, burn_in, params, sequence)
    q_target = unrolled_after_burn_in(network, burn_in, target, sequence)
    q_target = jax.lax.stop_gradient(q_target)
    td = _td_errors(objective, q_online, q_target, steps)
    losses = 0.5 * jnp.sum(jnp.square(td.errors), axis=0)
    mean = jnp.mean(weights * losses)
    priorities = sequence_priority(td.errors, td.is_trained, mix=objective.priority_mix)
    output = LossOutput(jax.lax.stop_gradient(priorities), metrics_of(q_online, td))
    return mean, output


def _td_errors(
    objective: Objective, q_online: Array, q_target: Array, steps: StoredStep
) -> TDErrors:
    timestep = jax.tree.map(lambda leaf: leaf[objective.window.burn_in :], steps.timestep)
    reward = scaled(timestep.reward, objective.reward_scale, limit=0)
    after_burn_in = StoredStep(
        timestep=timestep._replace(reward=reward),
        action=steps.action[objective.window.burn_in :],
        version=(),
        extras=(),
    )
    return n_step_td_errors(
        q_online,
        q_target,
        steps=after_burn_in,
        n_steps=objective.window.bootstrap,
        gamma=objective.gamma,
        scaling=objective.scaling,
    )


def metrics_of(q_online: Array, td: TDErrors) -> dict[str, Array]:
    """What R2D2 and Ape-X say of a batch; `q_online` is `[T, B, A]`."""
    num_trained = jnp.maximum(jnp.sum(td.is_trained, dtype=jnp.float32), 1.0)
    return {
        "td_error_mean": jnp.sum(jnp.abs(td.errors)) / num_trained,
        "td_error_max": jnp.max(jnp.abs(td.errors)),
        "q_mean": jnp.mean(q_online),
        "q_max": jnp.max(q_online),
        "target_mean": jnp.sum(td.targets) / num_trained,
        "trained_fraction": jnp.mean(td.is_trained, dtype=jnp.float32),
    }


def initial_priorities(objective: Objective, steps: StoredStep) -> Array:
    """`[B] float32`, of sequences `[T, B]`, from the Q-values stored when acting."""
    chex.assert_shape(steps.action, (objective.window.length, None))
    q_acting = steps.extras[objective.window.burn_in :]
    td = _td_errors(objective, q_acting, q_acting, steps)
    return sequence_priority(td.errors, td.is_trained, mix=objective.priority_mix)
