"""Mistakes in an agent of one's own: each is one line, when it is traced."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from seedrl.agents.agent import ActOutput, Agent, AgentState, Passes, UpdateOutput
from seedrl.agents.contract import build_agent
from seedrl.agents.gradient_update import GradientUpdate, LossOutput
from seedrl.agents.r2d2 import R2D2Config
from seedrl.agents.window import WindowSpec
from seedrl.errors import ConfigError
from seedrl.networks.network import Network
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec
from seedrl.types import Sequence, StoredStep, TimeStep

SPEC = EnvSpec(ArraySpec((4,), "float32"), DiscreteSpec(2))
WINDOW = WindowSpec(0, 5, 1, 5)
B, T = 3, WINDOW.length


def _loss(params: Any, target: Any, sequence: Any, weights: Any, key: Any) -> Any:
    q_values = sequence.steps.timestep.observation @ params["w"]
    errors = jnp.square(q_values).mean((0, 2))
    return jnp.mean(weights * errors), LossOutput(errors, {"q": q_values.mean()})


_UPDATE = GradientUpdate(_loss, optax.sgd(0.1))
_AGENT = Agent(
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


class Mine:
    """A config of one's own."""

    def __init__(self, **changes: Any) -> None:
        self.window = WINDOW
        self.changes = changes

    def build(self, spec: EnvSpec) -> Agent:
        return _AGENT._replace(**self.changes)


def _steps() -> StoredStep:
    zeros = jnp.zeros((T, B))
    timestep = TimeStep(zeros.astype(jnp.uint8), zeros, zeros, jnp.zeros((T, B, 4)))
    q_values = jnp.zeros((T, B, 2))
    return StoredStep(timestep, zeros.astype(jnp.int32), zeros.astype(jnp.int32), q_values)


def _use(agent: Agent) -> Any:
    """Does with an agent what a run does with it, by shapes alone."""

    def use(key: Any) -> Any:
        params, carry, steps = agent.init(key), agent.initial_carry(B), _steps()
        step = jax.tree.map(lambda leaf: leaf[0], steps.timestep)
        output = agent.act(agent.behaviour(params), carry, step, agent.exploration(B), key)
        priorities = agent.initial_priorities(steps)
        agent.stored_carry(carry)
        state = agent.init_state(params)
        batch = agent.before_batch(state, Sequence(steps, carry), jnp.ones(B))
        learned = agent.update(state, *batch, key, mean=lambda tree: tree)
        state, _ = agent.after_batch(learned[0], Sequence(steps, carry), lambda tree: tree)
        return output, priorities, (state, learned[1])

    return jax.eval_shape(use, jax.random.PRNGKey(0))


def test_an_agent_that_keeps_its_contract_is_what_it_was() -> None:
    output, priorities, (state, learned) = _use(build_agent(Mine(), SPEC))
    assert (output.action.shape, output.action.dtype.name) == ((B,), "int32")
    assert (priorities.shape, learned.priorities.shape) == ((B,), (B,))
    assert set(learned.metrics) == {"q", "loss", "gradient_norm"}
    assert state.params["w"].shape == (4, 2)


def test_r2d2_keeps_its_contract_with_64_bits_too() -> None:
    with jax.enable_x64(True):
        agent = build_agent(R2D2Config(), SPEC)
    assert isinstance(agent.evaluation_exploration, float)


def test_a_loss_is_of_any_floats_and_a_metric_of_any_numbers() -> None:
    def half(loss: Any, output: Any, weights: Any) -> Any:
        metrics = {"is_on": loss > 0, "level": loss.astype(jnp.uint8)}
        return loss.astype(jnp.bfloat16), output._replace(metrics=metrics)

    _, _, (_, learned) = _use(build_agent(Mine(update=_losing(half)), SPEC))
    assert learned.metrics["loss"].dtype == jnp.bfloat16
    assert learned.metrics["is_on"].dtype == jnp.bool_


def _acting(**changes: Any) -> Callable[..., Any]:
    return lambda *arguments: _AGENT.act(*arguments)._replace(**changes)


def _updating(**changes: Any) -> Callable[..., Any]:
    def update(*arguments: Any, mean: Any) -> Any:
        state, output = _UPDATE(*arguments, mean=mean)
        return state, output._replace(**changes)

    return update


def _losing(change: Callable[[Any, Any, Any], Any]) -> GradientUpdate:
    def own_loss(*arguments: Any) -> Any:
        loss, output = _loss(*arguments)
        return change(loss, output, arguments[3])

    return _UPDATE._replace(loss=own_loss)


def _widened(*arguments: Any, mean: Any) -> Any:
    state, output = _UPDATE(*arguments, mean=mean)
    return state._replace(params={"w": jnp.ones((4, 3))}), output


def _swapped(*arguments: Any, mean: Any) -> Any:
    return _UPDATE(*arguments, mean=mean)[::-1]


@pytest.mark.parametrize(
    ("field", "own", "text"),
    [
        ("init", lambda key: {"w": "zeros"}, "init (Mine)['w']: expected an array, got a str"),
        ("init", lambda: 0, "init (Mine): TypeError: <lambda>() takes 0 positional arguments but"),
        ("initial_carry", lambda size: 0.0, "initial_carry (Mine): expected [3, ...], one row for"),
        (
            "act",
            _acting(action=jnp.zeros((B, 2))),
            "act (Mine): action: expected int32[3], got float32[3, 2]; that is what the env",
        ),
        (
            "act",
            _acting(carry=jnp.zeros((B, 5), jnp.bfloat16)),
            "act (Mine): carry: expected float32[3, 5], got bfloat16[3, 5]; it must be as initial_",
        ),
        ("act", _acting(extras=1.0), "act (Mine): extras: expected [3, ...], one row for each of"),
        (
            "act",
            lambda *arguments: tuple(_AGENT.act(*arguments)),
            "act (Mine): expected ActOutput(action, carry, extras), got tuple(int32[3], float32[",
        ),
        ("exploration", lambda n: 0.1, "exploration (Mine): expected float32[3], got float32[];"),
        (
            "init_state",
            lambda params: params,
            "init_state (Mine): expected an AgentState, got dict",
        ),
        (
            "init_state",
            lambda params: AgentState(params, (), (), 0.0),
            "init_state (Mine).updates: expected int32[], got float32[]; it counts updates",
        ),
        ("update", _updating(guarded=()), "update (Mine): guarded: expected at least one number"),
        (
            "update",
            _updating(metrics={"loss": jnp.ones(B)}),
            "update (Mine): metric 'loss': expected float32[], got float32[3]; take its mean",
        ),
        (
            "update",
            _updating(metrics={3: 1.0}),
            "update (Mine): metrics: expected names that are texts, got 3",
        ),
        ("update", _updating(metrics=[1]), "update (Mine): metrics: expected numbers by name, got"),
        (
            "update",
            _updating(priorities=jnp.ones(2)),
            "update (Mine): priorities: expected float32[3], got float32[2]; one for each sequence",
        ),
        (
            "update",
            _widened,
            "update (Mine): state.params['w']: expected float32[4, 2], got float32[4, 3]; an upd",
        ),
        (
            "update",
            _swapped,
            "update (Mine): expected (AgentState, UpdateOutput), got UpdateOutput, AgentState",
        ),
        ("update", _losing(lambda loss, output, w: loss * w), "update.loss (_losing.<locals>.own_"),
        (
            "initial_priorities",
            lambda steps: jnp.ones(steps.action.shape),
            "initial_priorities (Mine): expected float32[3], got float32[6, 3]; one for each seq",
        ),
        (
            "before_batch",
            lambda state, sequence, weights: sequence,
            "before_batch (Mine): expected (Sequence, weights), got StoredStep, ",
        ),
        (
            "before_batch",
            lambda state, sequence, weights: (sequence, jnp.ones(2 * B)),
            "before_batch (Mine): weights: expected float32[3], got float32[6]; one for each seq",
        ),
        (
            "before_batch",
            lambda state, sequence, weights: (sequence._replace(carry=jnp.ones(2)), weights),
            "before_batch (Mine): carry: expected [3, ...], one row for each of a batch of 3, got",
        ),
        (
            "after_batch",
            lambda state, sequence, mean: state,
            "after_batch (Mine): expected (AgentState, guarded), got AgentState(",
        ),
        (
            "after_batch",
            lambda state, sequence, mean: (state._replace(extras=jnp.ones(2)), ()),
            "after_batch (Mine): state.extras: expected nothing, got float32[2]; it keeps the ",
        ),
        (
            "after_batch",
            lambda state, sequence, mean: (state, "loss"),
            "after_batch (Mine): guarded: expected an array, got a str",
        ),
        (
            "stored_carry",
            lambda carry: carry[0],
            "stored_carry (Mine): expected [3, ...], one row for each of a batch of 3, got float",
        ),
        ("behaviour", lambda params: params["actor"], "behaviour (Mine): KeyError: 'actor' ("),
    ],
)
def test_what_an_agent_of_ones_own_gets_wrong_is_one_line(
    field: str, own: Callable[..., Any], text: str
) -> None:
    agent = build_agent(Mine(**{field: own}), SPEC)
    with pytest.raises(ConfigError) as caught:
        _use(agent)
    assert str(caught.value).startswith(f"agent.{text}")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda loss, output, w: (loss * w, output), "): expected float32[], got float32[3]; take"),
        (
            lambda loss, output, w: (loss.astype(int), output),
            "): expected float32[], got int32[]; take the mean over the batch, of floats",
        ),
        (
            lambda loss, output, w: loss,
            "): expected (loss, LossOutput(priorities, metrics)), got f",
        ),
        (lambda loss, output, w: (output, loss), "metrics)), got LossOutput, "),
        (lambda loss, output, w: (loss, {"loss": loss}), "metrics)), got "),
        (
            lambda loss, output, w: (loss, output._replace(metrics={"w": w})),
            "agent.update (Mine): metric 'w': expected float32[], got float32[3]",
        ),
        (lambda loss, output, w: (w.no_such, output), "): AttributeError: "),
    ],
)
def test_what_a_loss_of_ones_own_gets_wrong_is_one_line(
    change: Callable[[Any, Any, Any], Any], text: str
) -> None:
    agent = build_agent(Mine(update=_losing(change)), SPEC)
    with pytest.raises(ConfigError) as caught:
        _use(agent)
    assert (text in str(caught.value) and __file__ in str(caught.value)) or "metric" in text


@pytest.mark.parametrize("kind", [ValueError, ConfigError])
def test_an_agent_that_does_not_fit_the_environment_is_one_line(kind: type[Exception]) -> None:
    class Config(Mine):
        def build(self, spec: EnvSpec) -> Agent:
            raise kind(f"expected an image, got {spec.leaves()[0][1].dtype}")

    with pytest.raises(ConfigError, match="expected an image, got float32") as caught:
        build_agent(Config(), SPEC)
    # Of what is not said in a line already, the place.
    assert (__file__ in str(caught.value)) == (kind is ValueError)


def test_what_is_no_agent_is_one_line() -> None:
    class Config(Mine):
        def build(self, spec: EnvSpec) -> Any:
            return UpdateOutput({}, ())

    with pytest.raises(ConfigError, match=r"agent\.build \(Config\): expected a seedrl\.agents\."):
        build_agent(Config(), SPEC)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"window": WINDOW._replace(stride=2)},
            r"build \(Mine\): expected the config's WindowSpec\(.*stride=5\), got .*stride=2\)",
        ),
        (
            {"evaluation_exploration": np.ones},
            r"evaluation_exploration \(Mine\): expected float32\[\], got a function; evaluation",
        ),
        (
            {"passes": Passes(epochs=0)},
            r"passes \(Mine\): expected at least 1 of each, got Passes\(epochs=0, minibatches=1",
        ),
    ],
)
def test_values_that_do_not_fit_are_refused_when_it_is_built(
    changes: dict[str, Any], text: str
) -> None:
    with pytest.raises(ConfigError, match=f"^agent.{text}"):
        build_agent(Mine(**changes), SPEC)


def test_what_jax_refuses_of_a_network_of_ones_own_is_its_mistake() -> None:
    @dataclass(frozen=True)
    class Whole:
        def build(self, spec: EnvSpec) -> Network:
            return Network(
                init=lambda key: jnp.ones((4, 2), jnp.int32),  # has no gradient
                initial_carry=lambda size: (),
                unroll=lambda params, carry, inputs: (inputs.observation @ params, carry),
            )

    agent = build_agent(R2D2Config(network=Whole(), burn_in=0, unroll=5, n_steps=1, stride=5), SPEC)
    with pytest.raises(ConfigError, match=rf"^agent.update \(R2D2Config\): .*int32.*{__file__}:\d"):
        _use(agent)
