"""Updates by a gradient: loss, optimizer step, target network, schedules."""

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

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


class LinearDecay(NamedTuple):
    """v(t) = start (1 - min(t / T, 1)) at environment step t of the run, T = `decay_steps`.

    With T = 0 it is `start` throughout.
    """

    start: float
    decay_steps: int = 0

    def at(self, env_steps: Array | tuple[()]) -> float | Array:
        """The value at `env_steps [] float32`, off by less than 1e-6 of `start`.

        A constant is a Python number, and needs no `env_steps`.
        """
        if not self.decay_steps:
            return self.start
        # By a float: whole numbers from 2^31 on are no int32.
        passed = jnp.minimum(jnp.asarray(env_steps) / float(self.decay_steps), 1.0)
        return self.start - self.start * passed


class GradientUpdate(NamedTuple):
    """One step down the gradient of a loss, then the target: an `Agent.update`."""

    # `(params, target, sequence, weights, key, **scheduled) -> (loss, LossOutput)`; `sequence` is
    # `[T, B]` with `T = window.length`, `weights [B] float32`. The scalar is a mean over the batch.
    loss: Callable[..., tuple[Array, LossOutput]]
    optimizer: optax.GradientTransformation  # of gradients that are means over all devices
    # `params -> target`. Must copy; an agent without a target network has `()`.
    init_target: Callable[[Tree], Tree] = lambda params: ()
    # `(params, target, updates) -> target`; `updates` counts this one, from 1.
    update_target: Callable[[Tree, Tree, Array], Tree] = lambda params, target, updates: target
    # The optimizer is built with the rate `start`; its steps are multiplied by rate / start.
    learning_rate: LinearDecay = LinearDecay(1.0)
    # Keyword arguments of `loss`. Those that decay are metrics, as the learning rate is.
    scheduled: Mapping[str, LinearDecay] = MappingProxyType({})
    # On policy a batch may have nothing that is trained: only repeats, say. Its gradient is exactly
    # 0, and parameters and optimizer stay as they are: momentum would still move them.
    may_train_nothing: bool = False

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
        """See `Agent.update`. Adds `loss`, `gradient_norm`, and what decays."""
        scheduled = {name: decay.at(state.env_steps) for name, decay in self.scheduled.items()}
        loss_of = functools.partial(self.loss, **scheduled)
        (loss, output), gradients = jax.value_and_grad(loss_of, has_aux=True)(
            state.params, state.target, sequence, weights, key
        )
        # The mean is taken after the gradient: inside the loss pmap would leave it per device.
        gradients, loss = mean(gradients), mean(loss)
        gradient_norm = optax.tree.norm(gradients)
        deltas, optimizer = self.optimizer.update(gradients, state.optimizer, state.params)
        rate = self.learning_rate.at(state.env_steps)
        values = {**scheduled, "learning_rate": rate}
        decays = {**self.scheduled, "learning_rate": self.learning_rate}
        shown = {name: values[name] for name, decay in decays.items() if decay.decay_steps}
        metrics = {**output.metrics, **shown, "loss": loss, "gradient_norm": gradient_norm}
        if self.learning_rate.decay_steps:
            # Adam's steps are proportional to its rate: a scaled step is that of a lower rate.
            deltas = optax.tree.scale(rate / self.learning_rate.start, deltas)
        # If this is not finite the learn step keeps the old state; nothing is checked here.
        params = optax.apply_updates(state.params, deltas)
        if self.may_train_nothing:
            # Not `where`, which would be compiled into the optimizer's step, to other roundings.
            kept, new = (state.params, state.optimizer), (params, optimizer)
            params, optimizer = jax.lax.cond(gradient_norm == 0, lambda: kept, lambda: new)
        # The learn step raises `updates` after this call; a target counts this update already.
        target = self.update_target(params, state.target, state.updates + 1)
        # An optimizer can make a step that is not finite of a gradient that is, as
        # `optax.scale_by_stddev` does where a gradient hardly changes.
        guarded = (loss, gradient_norm, optax.tree.norm(deltas))
        return (
            state._replace(params=params, target=target, optimizer=optimizer),
            UpdateOutput(metrics, guarded=guarded, priorities=output.priorities),
        )
