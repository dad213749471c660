"""Several passes over one batch: who is trained when, and what is said of all of them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from learner.learning.passes import run_passes
from seedrl.agents.agent import AgentState, Passes, UpdateOutput
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


@pytest.mark.parametrize("passes", [Passes(1, 4), Passes(3, 1), Passes(3, 4)])
def test_each_epoch_trains_each_sequence_once(passes: Passes) -> None:
    num_passes = passes.epochs * passes.minibatches
    state, output = jax.jit(
        lambda: run_passes(_update, passes, _state(num_passes), _sequence(), WEIGHTS, KEY)
    )()
    assert state.extras == num_passes
    np.testing.assert_array_equal(state.params["times"], np.full(B, passes.epochs))
    np.testing.assert_array_equal(state.params["carry"], np.full(B, passes.epochs))
    np.testing.assert_allclose(state.params["weight"], passes.epochs * WEIGHTS, rtol=1e-6)
    assert len(set(state.params["draws"].tolist())) == num_passes  # a key of its own each
    assert output.metrics["size"] == B // passes.minibatches
    assert output.metrics["pass"] == np.mean(np.arange(num_passes))
    assert output.metrics["pass_max"] == num_passes - 1
    np.testing.assert_array_equal(output.guarded[0], np.arange(num_passes))
    # Each sequence has the priority that the last epoch gave it.
    assert output.priorities.dtype == jnp.float32
    np.testing.assert_array_equal(output.priorities % 100, np.arange(B))
    assert output.priorities.min() >= 100 * (num_passes - passes.minibatches)


def test_each_epoch_is_dealt_anew() -> None:
    """As far as one can see: by what the first minibatch of each epoch is."""

    def update(state: AgentState, sequence: Sequence, weights: Array, key: Array) -> Any:
        del weights, key
        dealt = state.params.at[state.extras].set(sequence.steps.action[-1])
        metrics: dict[str, Array] = {}
        return state._replace(params=dealt, extras=state.extras + 1), UpdateOutput(metrics, ())

    passes = Passes(4, 2)
    state = AgentState(jnp.zeros((8, B // 2), jnp.int32), (), (), jnp.int32(0), jnp.int32(0))
    state, _ = jax.jit(lambda: run_passes(update, passes, state, _sequence(), WEIGHTS, KEY))()
    assert len({tuple(epoch) for epoch in state.params.reshape(4, B).tolist()}) == 4


def test_one_pass_is_one_call_of_everything_as_it_is() -> None:
    given: list[Any] = []

    def update(*arguments: Any) -> Any:
        given.extend(arguments)
        return "state", "output"

    arguments = _state(1), _sequence(), WEIGHTS, KEY
    assert run_passes(update, Passes(), *arguments) == ("state", "output")
    assert all(got is expected for got, expected in zip(given, arguments, strict=True))


def test_an_agent_without_priorities_has_none_after_several_passes() -> None:
    def update(*arguments: Any) -> Any:
        state, output = _update(*arguments)
        return state, output._replace(priorities=())

    _, output = run_passes(update, Passes(2, 2), _state(4), _sequence(), WEIGHTS, KEY)
    assert output.priorities == ()
