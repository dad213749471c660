"""Updates by a gradient: what most agents give as `Agent.update`."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from seedrl.agents.agent import AgentState, UpdateOutput
from seedrl.contracts.calls import call, named
from seedrl.contracts.results import require_pair
from seedrl.contracts.shapes import FLOATS, require_array
from seedrl.types import Array, Sequence, Tree


class LossOutput(NamedTuple):
    """Second result of a loss: what `UpdateOutput` says of `priorities` and `metrics`."""

    priorities: Array
    metrics: Mapping[str, Array]


def no_target(params: Tree) -> Tree:
    """The target of an agent without one."""
    del params
    return ()


def no_metrics(optimizer: Tree) -> Mapping[str, Array]:
    """Of an optimizer of which nothing is shown."""
    del optimizer
    return {}


def copied(params: Tree) -> Tree:
    """Parameters that share no memory with `params`, which an update consumes."""
    return jax.tree.map(jnp.copy, params)


def periodic_copy(interval: int, params: Tree, target: Tree, updates: Array) -> Tree:
    """`params` if `updates`, an integer scalar, is a multiple of `interval`, else `target`.

    Source: Mnih et al. 2015, "Human-level control through deep reinforcement learning", Methods.
    """
    is_due = updates % interval == 0
    return jax.tree.map(lambda new, old: jnp.where(is_due, new, old), params, target)


def polyak_average(rate: float, params: Tree, target: Tree) -> Tree:
    """θ' + τ (θ - θ'): `target` after it has gone `rate` of the way to `params`.

    Source: Lillicrap et al. 2016, "Continuous control with deep reinforcement learning", section 3.
    """
    return optax.incremental_update(params, target, rate)


def keep_target(params: Tree, target: Tree, updates: Array) -> Tree:
    """A target that never changes; also that of an agent without one."""
    del params, updates
    return target


class GradientUpdate(NamedTuple):
    """One step down the gradient of a loss, then the target: an `Agent.update`.

    Attributes:
      loss: `(params, target, sequence, weights, key) -> (loss, LossOutput)`; `sequence` is `[T, B]`
        with `T = window.length`, `weights [B] float32`. The scalar is a mean over the batch.
      optimizer: turns gradients, which are means over all devices, into updates.
      init_target: `params -> target`. Must copy.
      update_target: `(params, target, updates) -> target`; `updates` counts this one, from 1.
      optimizer_metrics: `state of the optimizer -> numbers by name`, before it takes its step.
    """

    loss: Callable[[Tree, Tree, Sequence, Array, Array], tuple[Array, LossOutput]]
    optimizer: optax.GradientTransformation
    init_target: Callable[[Tree], Tree] = no_target
    update_target: Callable[[Tree, Tree, Array], Tree] = keep_target
    optimizer_metrics: Callable[[Tree], Mapping[str, Array]] = no_metrics

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
        """See `Agent.update`. Metrics: those of loss and optimizer, `loss` and `gradient_norm`."""
        loss_and_output = functools.partial(_checked, self.loss)
        (loss, output), gradients = jax.value_and_grad(loss_and_output, has_aux=True)(
            state.params, state.target, sequence, weights, key
        )
        # The mean is taken after the gradient: inside the loss pmap would leave it per device.
        gradients, loss = mean(gradients), mean(loss)
        gradient_norm = optax.tree.norm(gradients)
        deltas, optimizer = self.optimizer.update(gradients, state.optimizer, state.params)
        params = optax.apply_updates(state.params, deltas)
        target = self.update_target(params, state.target, state.updates + 1)
        shown = self.optimizer_metrics(state.optimizer)
        metrics = {**output.metrics, **shown, "loss": loss, "gradient_norm": gradient_norm}
        # Of a finite gradient too an optimizer can make what is not: see `optax.scale_by_stddev`.
        guarded = (loss, gradient_norm, optax.tree.norm(deltas))
        return (
            state._replace(params=params, target=target, optimizer=optimizer),
            UpdateOutput(metrics, guarded=guarded, priorities=output.priorities),
        )


def _checked(loss: Callable[..., Any], *arguments: Any) -> tuple[Array, LossOutput]:
    """What a loss gives. Raises ConfigError, when it is traced, for anything but what it must."""
    what = f"agent.update.loss ({named(loss)})"
    result = call(what, loss, *arguments)
    require_pair(what, result, (object, LossOutput), "(loss, LossOutput(priorities, metrics))")
    require_array(what, result[0], (), FLOATS, "take the mean over the batch, of floats")
    return result
