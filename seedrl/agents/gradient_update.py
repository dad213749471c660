"""Updates by a gradient: loss, optimizer step, target network, learning rate."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from seedrl.agents.agent import AgentState, UpdateOutput
from seedrl.types import Array, Sequence, Tree


class LossOutput(NamedTuple):
    """Second result of a loss; see `UpdateOutput` for `priorities` and `metrics`."""

    priorities: Array
    metrics: Mapping[str, Array]


# Target networks: older parameters, with which targets are computed.


def copied(params: Tree) -> Tree:
    """Parameters that share no memory with `params`: the update donates their buffers."""
    return jax.tree.map(jnp.copy, params)


def periodic_copy(interval: int, params: Tree, target: Tree, updates: Array) -> Tree:
    """`params` if `updates`, an integer scalar, is a multiple of `interval`, else `target`.

    Source: Mnih et al. 2015, "Human-level control through deep reinforcement learning", Methods.
    """
    is_due = updates % interval == 0
    return jax.tree.map(lambda new, old: jnp.where(is_due, new, old), params, target)


class GradientUpdate(NamedTuple):
    """One step down the gradient of a loss, then the target: an `Agent.update`."""

    # `(params, target, sequence, weights, key) -> (loss, LossOutput)`; `sequence` is `[T, B]` with
    # `T = window.length`, `weights [B] float32`. The scalar is a mean over the batch.
    loss: Callable[[Tree, Tree, Sequence, Array, Array], tuple[Array, LossOutput]]
    optimizer: optax.GradientTransformation  # of gradients that are means over all devices
    # `params -> target`. Must copy; an agent without a target network has `()`.
    init_target: Callable[[Tree], Tree] = lambda params: ()
    # `(params, target, updates) -> target`; `updates` counts this one, from 1.
    update_target: Callable[[Tree, Tree, Array], Tree] = lambda params, target, updates: target
    learning_rate: optax.ScalarOrSchedule = 0.0  # the optimizer's: a metric if it is a schedule

    def init_state(self, params: Tree) -> AgentState:
        """See `Agent.init_state`."""
        return AgentState(
            params=params,
            target=self.init_target(params),
            optimizer=self.optimizer.init(params),
            updates=jnp.zeros((), jnp.int32),
        )

    def __call__(
        self,
        state: AgentState,
        sequence: Sequence,
        weights: Array,
        key: Array,
        mean: Callable[[Tree], Tree],
    ) -> tuple[AgentState, UpdateOutput]:
        """See `Agent.update`. Adds the metrics `loss` and `gradient_norm`."""
        (loss, output), gradients = jax.value_and_grad(self.loss, has_aux=True)(
            state.params, state.target, sequence, weights, key
        )
        # The mean is taken after the gradient: inside the loss pmap would leave it per device.
        gradients, loss = mean(gradients), mean(loss)
        gradient_norm = optax.tree.norm(gradients)
        deltas, optimizer = self.optimizer.update(gradients, state.optimizer, state.params)
        # If this is not finite the learn step keeps the old state; nothing is checked here.
        params = optax.apply_updates(state.params, deltas)
        # The learn step raises `updates` after this call; a target counts this update already.
        target = self.update_target(params, state.target, state.updates + 1)
        shown = learning_rate_metrics(self.learning_rate, state.optimizer)
        metrics = {**output.metrics, **shown, "loss": loss, "gradient_norm": gradient_norm}
        # An optimizer can make a step that is not finite of a gradient that is: see
        # `optax.scale_by_stddev`.
        guarded = (loss, gradient_norm, optax.tree.norm(deltas))
        return (
            state._replace(params=params, target=target, optimizer=optimizer),
            UpdateOutput(metrics, guarded=guarded, priorities=output.priorities),
        )


# The learning rate: constant, or falling linearly to 0.


def learning_rate_of(config: Any, *, steps_per_update: int = 1) -> optax.ScalarOrSchedule:
    """The config's `learning_rate`, as a schedule if `learning_rate_decay_updates` is not 0."""
    if not config.learning_rate_decay_updates:
        rate: float = config.learning_rate
        return rate
    # An optimizer counts minibatches.
    steps = config.learning_rate_decay_updates * steps_per_update
    return optax.linear_schedule(config.learning_rate, 0.0, steps)


def learning_rate_metrics(rate: optax.ScalarOrSchedule, optimizer: Tree) -> dict[str, Array]:
    """The learning rate of the next step of an optimizer in this state, if it is a schedule."""
    if not callable(rate):
        return {}
    # From the optimizer's own counter.
    leaves = jax.tree.leaves(optimizer, is_leaf=_is_schedule)
    (schedule,) = filter(_is_schedule, leaves)
    return {"learning_rate": jnp.asarray(rate(schedule.count), jnp.float32)}


def _is_schedule(node: Any) -> bool:
    return isinstance(node, optax.ScaleByScheduleState)
