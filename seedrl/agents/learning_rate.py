"""The learning rate of an agent's configuration: kept, or falling linearly to 0."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from seedrl.types import Array, Tree


def rate_of(config: Any, *, steps_per_update: int = 1) -> optax.ScalarOrSchedule:
    """The `learning_rate`, which falls to 0 over `learning_rate_decay_updates` unless they are 0.

    `steps_per_update`: of the optimizer, which counts minibatches.
    """
    if not config.learning_rate_decay_updates:
        rate: float = config.learning_rate
        return rate
    steps = config.learning_rate_decay_updates * steps_per_update
    return optax.linear_schedule(config.learning_rate, 0.0, steps)


def rate_metrics(rate: optax.ScalarOrSchedule, optimizer: Tree) -> dict[str, Array]:
    """What the next step of an optimizer in this state takes, if its `rate` is not always the same.

    It is computed beside what the optimizer computes, and changes nothing of that.
    """
    if not callable(rate):
        return {}
    (schedule,) = filter(_is_schedule, jax.tree.leaves(optimizer, is_leaf=_is_schedule))
    return {"learning_rate": jnp.asarray(rate(schedule.count), jnp.float32)}


def with_schedule_of(optimizer: Tree, moved: Tree) -> Tree:
    """State of an optimizer, but as far down its schedule as `moved`, another state of it."""
    return jax.tree.map(
        lambda own, other: other if _is_schedule(other) else own,
        optimizer,
        moved,
        is_leaf=_is_schedule,
    )


def _is_schedule(node: Any) -> bool:
    return isinstance(node, optax.ScaleByScheduleState)
