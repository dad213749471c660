"""Epochs over one batch: which sequence is trained when, and the metrics of all minibatches."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from learner.learning.learn_step import run_epochs
from seedrl.agents.agent import AgentState, UpdateOutput
from seedrl.types import Array, Sequence, StoredStep

B, T = 8, 3
KEY = jax.random.PRNGKey(0)
WEIGHTS = jnp.linspace(0.1, 0.8, B)


def _sequence() -> Sequence:
    """Sequence b says its number in every row and in its carry."""
    number = jnp.arange(B)
    steps = StoredStep((), jnp.broadcast_to(number, (T, B)), (), ())
    return Sequence(steps, carry={"number": number})


def _update(
    state: AgentState, sequence: Sequence, weights: Array, key: Array
) -> tuple[AgentState, UpdateOutput]:
    """Counts, per sequence, how often it was trained and with what weight; `extras` is the pass."""
    number = sequence.steps.action[-1]
    counted = {
        "times": state.params["times"].at[number].add(1),
        "weight": state.params["weight"].at[number].add(weights),
        "carry": state.params["carry"].at[sequence.carry["number"]].add(1),
        "draws": state.params["draws"].at[state.extras].set(jax.random.uniform(key)),
    }
    metrics = {"pass": state.extras, "pass_max": state.extras, "size": jnp.int32(number.size)}
    output = UpdateOutput(metrics, (state.extras,), number + 100.0 * state.extras)
    return state._replace(params=counted, extras=state.extras + 1), output


def _state(num_passes: int) -> AgentState:
    params = {
        "times": jnp.zeros(B, jnp.int32),
        "weight": jnp.zeros(B),
        "carry": jnp.zeros(B, jnp.int32),
        "draws": jnp.zeros(num_passes),
    }
    return AgentState(params, (), (), jnp.int32(0), extras=jnp.int32(0))


def _run(update: Any, state: AgentState, epochs: int, minibatches: int) -> Any:
    arguments = state, _sequence(), WEIGHTS, KEY
    return run_epochs(update, *arguments, epochs=epochs, minibatches=minibatches)


@pytest.mark.parametrize(("epochs", "minibatches"), [(1, 4), (3, 1), (3, 4)])
def test_each_epoch_trains_each_sequence_once(epochs: int, minibatches: int) -> None:
    num_passes = epochs * minibatches
    state, output = jax.jit(lambda: _run(_update, _state(num_passes), epochs, minibatches))()
    assert state.extras == num_passes
    np.testing.assert_array_equal(state.params["times"], np.full(B, epochs))
    np.testing.assert_array_equal(state.params["carry"], np.full(B, epochs))
    np.testing.assert_allclose(state.params["weight"], epochs * WEIGHTS, rtol=1e-6)
    assert len(set(state.params["draws"].tolist())) == num_passes  # a key of its own each
    assert output.metrics["size"] == B // minibatches
    assert output.metrics["pass"] == np.mean(np.arange(num_passes))
    assert output.metrics["pass_max"] == num_passes - 1
    np.testing.assert_array_equal(output.guarded[0], np.arange(num_passes))
    # Each sequence has the priority that the last epoch gave it.
    assert output.priorities.dtype == jnp.float32
    np.testing.assert_array_equal(output.priorities % 100, np.arange(B))
    assert output.priorities.min() >= 100 * (num_passes - minibatches)
