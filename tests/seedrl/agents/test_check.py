"""Mistakes in an agent or network of one's own: one line that names the field, when it is built."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from seedrl.agents.agent import ActOutput, Agent, AgentState, UpdateOutput
from seedrl.agents.check import build_agent, check_agent
from seedrl.agents.gradient_update import GradientUpdate, LossOutput
from seedrl.agents.r2d2 import R2D2Config
from seedrl.agents.window import WindowSpec
from seedrl.errors import ConfigError
from seedrl.networks.network import Network
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec

SPEC = EnvSpec(ArraySpec((4,), "float32"), DiscreteSpec(2))
WINDOW = WindowSpec(0, 5, 1, 5)


def _loss(params: Any, target: Any, sequence: Any, weights: Any, key: Any) -> Any:
    q_values = sequence.steps.timestep.observation @ params["w"]
    errors = jnp.square(q_values).mean((0, 2))
    return jnp.mean(weights * errors), LossOutput(errors, {"q": q_values.mean()})


_UPDATE = GradientUpdate(_loss, optax.sgd(0.1))
AGENT = Agent(
    window=WINDOW,
    init=lambda key: {"w": jnp.ones((4, 2))},
    initial_carry=lambda size: jnp.zeros((size, 5)),
    act=lambda params, carry, step, exploration, key: ActOutput(
        jnp.argmax(step.observation @ params["w"], -1).astype(jnp.int32), carry, exploration
    ),
    exploration=np.ones,
    evaluation_exploration=0.0,
    init_state=_UPDATE.init_state,
    update=_UPDATE,
    initial_priorities=lambda steps: jnp.ones(steps.action.shape[1]),
)


def _acting(**changes: Any) -> Callable[..., Any]:
    return lambda *arguments: AGENT.act(*arguments)._replace(**changes)


def _updating(**changes: Any) -> Callable[..., Any]:
    def update(*arguments: Any, mean: Any) -> Any:
        state, output = _UPDATE(*arguments, mean=mean)
        return state, output._replace(**changes)

    return update


def _widened(*arguments: Any, mean: Any) -> Any:
    state, output = _UPDATE(*arguments, mean=mean)
    return state._replace(params={"w": jnp.ones((4, 3))}), output


def _without_params(*arguments: Any, mean: Any) -> Any:
    state, output = _UPDATE(*arguments, mean=mean)
    return state._replace(params=()), output


def test_an_agent_that_keeps_its_contract_passes() -> None:
    check_agent(AGENT, SPEC)
    check_agent(AGENT._replace(minibatches=4, epochs=2), SPEC)


def test_parameters_are_float32_with_64_bits_too() -> None:
    """So a checkpoint fits whatever JAX_ENABLE_X64 says."""
    with jax.enable_x64(True):
        agent = build_agent(R2D2Config(), SPEC)
        params = jax.eval_shape(agent.init, jax.random.PRNGKey(0))
    assert {leaf.dtype.name for leaf in jax.tree.leaves(params)} == {"float32"}


# Of the field of `Agent` a value that does not fit, and the field that the line names.
MISTAKES: list[tuple[str, Any, str]] = [
    ("epochs", 0, "agent.epochs"),
    ("chunks", 0, "agent.chunks"),
    ("initial_carry", lambda size: jnp.zeros(()), "agent.initial_carry"),
    ("act", _acting(action=jnp.zeros(3)), "agent.act.action"),
    ("act", _acting(carry=jnp.zeros((3, 5), jnp.bfloat16)), "agent.act.carry"),
    ("act", _acting(extras=jnp.ones(())), "agent.act.extras"),
    ("init", lambda: {}, "agent.init"),
    ("initial_carry", None, "agent.initial_carry"),
    ("act", lambda params, carry, timestep: carry, "agent.act"),
    ("exploration", lambda: 0.1, "agent.exploration"),
    ("update", lambda state, sequence, weights, key: state, "agent.update"),
    ("act", lambda *arguments: tuple(AGENT.act(*arguments)), "agent.act"),
    ("exploration", lambda number: 0.1, "agent.exploration"),
    ("init_state", lambda params: params, "agent.init_state"),
    ("init_state", lambda params: AgentState(params, (), (), 0.0), "agent.init_state.updates"),
    ("update", _updating(guarded=()), "agent.update.guarded"),
    ("update", _updating(metrics={"loss": jnp.ones(3)}), "agent.update.metrics"),
    ("update", _updating(priorities=jnp.ones(2)), "agent.update.priorities"),
    ("update", _widened, "agent.update.state.params['w']"),
    ("update", lambda *arguments, mean: _UPDATE(*arguments, mean=mean)[::-1], "agent.update"),
    ("update", _without_params, "agent.update.state.params['w']"),
    ("initial_priorities", lambda steps: jnp.ones(steps.action.shape), "agent.initial_priorities"),
    ("preprocess_batch", lambda state, sequence, weights: sequence, "agent.preprocess_batch"),
    (
        "preprocess_batch",
        lambda state, sequence, weights: (sequence, jnp.ones(6)),
        "agent.preprocess_batch.weights",
    ),
    ("update_statistics", lambda state, sequence, weights, mean: state, "agent.update_statistics"),
    (
        "update_statistics",
        lambda state, sequence, weights, mean: (state._replace(extras=jnp.ones(2)), ()),
        "agent.update_statistics.state.extras",
    ),
    ("stored_carry", lambda carry: carry[0], "agent.stored_carry"),
    ("actor_params", lambda params: params["actor"], "agent.actor_params"),
]


@pytest.mark.parametrize(("field", "own", "named"), MISTAKES)
def test_a_mistake_is_one_line_that_names_the_field(field: str, own: Any, named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_agent(AGENT._replace(**{field: own}), SPEC)
    assert str(caught.value).startswith(f"{named}: ") and "\n" not in str(caught.value)


def test_an_error_in_ones_own_function_has_its_place_in_the_file() -> None:
    mistake = _UPDATE._replace(loss=lambda *arguments: arguments[3].no_such)
    with pytest.raises(ConfigError) as caught:
        check_agent(AGENT._replace(update=mistake), SPEC)
    assert "agent.update" in str(caught.value) and f"{__file__}:" in str(caught.value)


@dataclass(frozen=True)
class Mine:
    """A config of one's own, which builds anything."""

    built: Any
    window: WindowSpec = WINDOW

    def build(self, spec: EnvSpec) -> Any:
        if isinstance(self.built, Exception):
            raise self.built
        return self.built


@pytest.mark.parametrize(
    ("built", "named"),
    [
        (UpdateOutput({}, ()), "agent.build"),
        (AGENT._replace(window=WINDOW._replace(stride=2)), "agent.window"),
        (ValueError("expected an image"), "agent.build: ValueError: "),
        (ConfigError("expected an image"), "expected an image"),
    ],
)
def test_a_config_that_builds_no_agent_is_one_line(built: Any, named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build_agent(Mine(built), SPEC)
    assert str(caught.value).startswith(named)


def _network(**changes: Any) -> Network:
    def unroll(params: Any, carry: Any, inputs: Any) -> Any:
        return inputs.observation @ params, carry

    carry = jnp.zeros((3, 1))
    network = Network(lambda key: jnp.ones((4, 2)), lambda size: carry[:size], unroll)
    return network._replace(**changes)


def _unrolling(output: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda params, carry, inputs: (output(inputs.observation @ params), carry)


@pytest.mark.parametrize(
    ("built", "named"),
    [
        (None, "agent.network.build"),
        (ValueError("no"), "agent.network.build"),
        (_network(init=lambda: jnp.ones((4, 2))), "agent.network.init: expected a function of 1"),
        (_network(initial_carry=lambda size: jnp.zeros(2)), "agent.network.initial_carry"),
        (_network(unroll=_unrolling(lambda q: q[..., :1])), "agent.network.unroll"),
        (_network(unroll=_unrolling(lambda q: q.astype(jnp.bfloat16))), "agent.network.unroll"),
        (
            _network(unroll=lambda params, carry, inputs: (inputs.observation @ params, ())),
            "agent.network.unroll: carry",
        ),
        (_network(unroll=lambda params, carry, inputs: 3 * carry), "agent.network.unroll"),
        (_network(unroll=lambda params, carry, inputs: carry.no_such), "agent.network.unroll"),
    ],
)
def test_a_mistake_in_a_network_is_one_line_that_names_the_field(built: Any, named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        R2D2Config(network=Mine(built)).build(SPEC)
    assert str(caught.value).startswith(named)
