"""Going through one batch several times, in several parts."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from seedrl.agents.agent import AgentState, Passes, UpdateOutput
from seedrl.types import Array, Sequence


def run_passes(
    update: Callable[[AgentState, Sequence, Array, Array], tuple[AgentState, UpdateOutput]],
    passes: Passes,
    state: AgentState,
    sequence: Sequence,
    weights: Array,
    key: Array,
) -> tuple[AgentState, UpdateOutput]:
    """Calls `update` for each minibatch of each epoch, with what one before it has left.

    One pass is one call, of everything as it is. Of several, the output has maxima and means of the
    metrics (see UpdateOutput), all that is guarded, and the priorities of the last epoch.

    Args:
      update: an agent's, with `mean` given.
      passes: B must be a multiple of its minibatches. Its pieces are cut already.
      state: consumed.
      sequence: `[T, B]`.
      weights: `[B] float32`.
      key: consumed.
    """
    epochs, minibatches, _ = passes
    if epochs * minibatches == 1:
        return update(state, sequence, weights, key)
    deal_key, key = jax.random.split(key)
    deal = functools.partial(jax.random.permutation, x=weights.shape[0])
    dealt = jax.vmap(deal)(jax.random.split(deal_key, epochs))

    def one_pass(state: AgentState, drawn: tuple[Array, Array]) -> tuple[AgentState, UpdateOutput]:
        rows, key = drawn
        part = Sequence(
            steps=jax.tree.map(lambda leaf: leaf[:, rows], sequence.steps),
            carry=jax.tree.map(lambda leaf: leaf[rows], sequence.carry),
        )
        return update(state, part, weights[rows], key)

    rows = dealt.reshape(epochs * minibatches, -1)
    state, outputs = jax.lax.scan(one_pass, state, (rows, jax.random.split(key, len(rows))))
    metrics = {
        name: jnp.max(values) if name.endswith("_max") else jnp.mean(values)
        for name, values in outputs.metrics.items()
    }
    priorities = jax.tree.map(
        lambda values: jnp.zeros_like(weights).at[dealt[-1]].set(values[-minibatches:].ravel()),
        outputs.priorities,
    )
    return state, UpdateOutput(metrics, outputs.guarded, priorities)
