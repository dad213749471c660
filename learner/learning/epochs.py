"""Epochs: learning from one batch several times, in shuffled minibatches."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from seedrl.agents.agent import AgentState, UpdateOutput
from seedrl.types import Array, Sequence


def run_epochs(
    update: Callable[[AgentState, Sequence, Array, Array], tuple[AgentState, UpdateOutput]],
    state: AgentState,
    sequence: Sequence,
    weights: Array,
    key: Array,
    *,
    epochs: int,
    minibatches: int,
) -> tuple[AgentState, UpdateOutput]:
    """Calls `update` for each minibatch of each epoch, with the state that the one before left.

    One minibatch of one epoch is one call, of the batch as it is. Of several, the output has maxima
    and means of the metrics (see UpdateOutput), all that is guarded, and the priorities of the last
    epoch.

    Args:
      update: an agent's, with `mean` given.
      state: consumed.
      sequence: `[T, B]`, cut into chunks already.
      weights: `[B] float32`.
      key: consumed.
      epochs: how often the batch is learned from.
      minibatches: parts of equal size, of which B must be a multiple.
    """
    if epochs * minibatches == 1:
        return update(state, sequence, weights, key)
    shuffle_key, key = jax.random.split(key)
    shuffle = functools.partial(jax.random.permutation, x=weights.shape[0])
    shuffled = jax.vmap(shuffle)(jax.random.split(shuffle_key, epochs))

    def one_minibatch(
        state: AgentState, drawn: tuple[Array, Array]
    ) -> tuple[AgentState, UpdateOutput]:
        columns, key = drawn
        part = Sequence(
            steps=jax.tree.map(lambda leaf: leaf[:, columns], sequence.steps),
            carry=jax.tree.map(lambda leaf: leaf[columns], sequence.carry),
        )
        return update(state, part, weights[columns], key)

    columns = shuffled.reshape(epochs * minibatches, -1)
    keys = jax.random.split(key, len(columns))
    state, outputs = jax.lax.scan(one_minibatch, state, (columns, keys))
    metrics = {
        name: jnp.max(values) if name.endswith("_max") else jnp.mean(values)
        for name, values in outputs.metrics.items()
    }
    priorities = jax.tree.map(
        lambda values: jnp.zeros_like(weights).at[shuffled[-1]].set(values[-minibatches:].ravel()),
        outputs.priorities,
    )
    return state, UpdateOutput(metrics, outputs.guarded, priorities)
