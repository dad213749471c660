"""R2D2's loss, gradient and priorities against the paper's equations, written out in float64.

The network is a small recurrent one that numpy computes too. What the paper holds constant (the
targets, and the state that the burn-in leaves) is held constant in the differences of the oracle.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seedrl.agents.inputs import AgentCarry
from seedrl.agents.r2d2 import R2D2Config
from seedrl.networks.network import Network, NetworkInput
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec
from seedrl.types import Sequence, StepType, StoredStep, Tree
from tests.gated import all_but
from tests.seedrl.agents.double_q import errors_of, executed, priorities_of, targets_of
from tests.seedrl.rl.episodes import any_timesteps

FIRST, MID, LAST = StepType.FIRST, StepType.MID, StepType.LAST
B, UNITS, INPUTS, ACTIONS = 2, 2, 2, 3
KEY = jax.random.key(0)
SHAPES = {
    "W": (INPUTS, UNITS),
    "U": (UNITS, UNITS),
    "A": (ACTIONS, UNITS),
    "R": (UNITS,),
    "V": (UNITS, ACTIONS),
}


def unroll(xp: Any, params: Tree, state: Any, inputs: NetworkInput) -> tuple[Any, Any]:
    """s_t = tanh(W x_t + U s_{t-1} + A a_{t-1} + R r_t), q_t = V s_t; on FIRST only W x_t.

    Of parameters `[N, ...]`, which are many networks, `[N, T, B, A]`.
    """
    outputs = []
    for t in range(inputs.reward.shape[0]):
        continues = xp.where(inputs.is_first[t], 0.0, 1.0)[:, None]
        past = (
            state @ params["U"]
            + params["A"][..., inputs.previous_action[t], :]
            + inputs.reward[t][:, None] * params["R"][..., None, :]
        )
        state = xp.tanh(inputs.observation[t] @ params["W"] + continues * past)
        outputs.append(state @ params["V"])
    return xp.stack(outputs, axis=-3), state


@dataclass(frozen=True)
class SmallNetwork:
    """`unroll` as an agent's network."""

    def build(self, spec: EnvSpec) -> Network:
        return Network(
            init=lambda key: {name: jnp.zeros(shape) for name, shape in SHAPES.items()},
            initial_carry=lambda size: jnp.zeros((size, UNITS)),
            unroll=_scanned,
        )


def _scanned(params: Tree, state: Any, inputs: NetworkInput) -> tuple[Any, Any]:
    """`unroll`, of which jax compiles one row."""

    def one_row(state: Any, row: NetworkInput) -> tuple[Any, Any]:
        output, state = unroll(jnp, params, state, jax.tree.map(lambda leaf: leaf[None], row))
        return state, output[0]

    state, outputs = jax.lax.scan(one_row, state, inputs)
    return outputs, state


CONFIGS = {
    "burn-in, three steps": R2D2Config(
        network=SmallNetwork(), burn_in=3, unroll=4, n_steps=3, stride=2, gamma=0.9
    ),
    "no burn-in, one step": R2D2Config(
        network=SmallNetwork(), burn_in=0, unroll=4, n_steps=1, stride=2, gamma=0.99
    ),
    "unscaled, mean priority": R2D2Config(
        network=SmallNetwork(),
        burn_in=1,
        unroll=3,
        n_steps=2,
        stride=1,
        gamma=0.8,
        value_scaling=False,
        priority_eta=0.25,
    ),
}
_NAMES = all_but(["burn-in, three steps", "unscaled, mean priority"], CONFIGS)


class Case(NamedTuple):
    """What a loss is given; float32, as the learner gives it."""

    params: Tree
    target: Tree
    sequence: Sequence
    weights: np.ndarray


class Constants(NamedTuple):
    """What no gradient reaches: the state after the burn-in, and the targets `[U, B]`."""

    state: np.ndarray
    targets: np.ndarray


@functools.cache
def jitted(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    agent = CONFIGS[name].build(EnvSpec(ArraySpec((INPUTS,), "float32"), DiscreteSpec(ACTIONS)))
    loss = jax.jit(jax.value_and_grad(agent.update.loss, has_aux=True))
    return loss, jax.jit(agent.initial_priorities)


@st.composite
def cases(draw: st.DrawFn, config: R2D2Config) -> Case:
    size = (config.window.length, B)
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))

    def params() -> Tree:
        scales = {"R": 0.02, "V": 3.0}
        return {
            name: (random.normal(size=shape) * scales.get(name, 1.0)).astype(np.float32)
            for name, shape in SHAPES.items()
        }

    observation = random.normal(size=(*size, INPUTS)).astype(np.float32)
    timestep = draw(any_timesteps(size, 100))._replace(observation=observation)
    q_acting = (5 * random.normal(size=(*size, ACTIONS))).astype(np.float32)
    steps = StoredStep(
        timestep,
        random.integers(0, ACTIONS, size).astype(np.int32),
        np.zeros(size, np.int32),
        q_acting,
    )
    carry = AgentCarry(
        random.normal(size=(B, UNITS)).astype(np.float32),
        random.integers(0, ACTIONS, B).astype(np.int32),
    )
    weights = random.uniform(0.1, 1.0, B).astype(np.float32)
    return Case(params(), params(), Sequence(steps, carry), weights)


def rows_of(sequence: Sequence, rows: slice) -> NetworkInput:
    steps, carry = sequence
    before = np.concatenate([carry.previous_action[None], steps.action[:-1]])
    inputs = NetworkInput(
        steps.timestep.observation, before, steps.timestep.reward, steps.timestep.step_type == FIRST
    )
    return jax.tree.map(lambda leaf: leaf[rows], inputs)


def constants_of(config: R2D2Config, case: Case) -> Constants:
    wide = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), case)
    everything, carry = rows_of(case.sequence, slice(None)), wide.sequence.carry.network
    q_online, _ = unroll(np, wide.params, carry, everything)
    q_target, _ = unroll(np, wide.target, carry, everything)
    state = carry
    if config.burn_in:
        _, state = unroll(np, wide.params, carry, rows_of(case.sequence, slice(config.burn_in)))
    return Constants(state, targets_of(config, q_online, q_target, case.sequence.steps))


def errors_by(config: R2D2Config, params: Tree, case: Case, constants: Constants) -> np.ndarray:
    rows = slice(config.burn_in, config.burn_in + config.unroll)
    q_values, _ = unroll(np, params, constants.state, rows_of(case.sequence, rows))
    return constants.targets - executed(config, q_values, case.sequence.steps)


def loss_of(config: R2D2Config, params: Tree, case: Case, constants: Constants) -> np.ndarray:
    errors = errors_by(config, params, case, constants)
    return np.mean(case.weights * np.nansum(0.5 * errors**2, axis=-2), axis=-1)


def gradient_of(config: R2D2Config, params: Tree, case: Case, constants: Constants) -> Tree:
    """Central differences in float64, all at once: good to nine digits or so."""
    flat = np.concatenate([leaf.ravel() for leaf in params.values()])

    def parts(numbers: np.ndarray) -> Tree:
        """`[..., flat]` -> leaves `[..., *shape]`."""
        ends = np.cumsum([leaf.size for leaf in params.values()])[:-1]
        split = zip(params.items(), np.split(numbers, ends, axis=-1), strict=True)
        return {name: part.reshape(*part.shape[:-1], *leaf.shape) for (name, leaf), part in split}

    changes = 1e-6 * np.eye(len(flat))
    up, down = (loss_of(config, parts(flat + c), case, constants) for c in (changes, -changes))
    return parts((up - down) / 2e-6)


@pytest.mark.parametrize("name", _NAMES)
@settings(max_examples=20, deadline=None, derandomize=True)
@given(data=st.data())
def test_loss_gradient_and_priorities_are_those_of_the_paper(
    name: str, data: st.DataObject
) -> None:
    config = CONFIGS[name]
    case = data.draw(cases(config))
    (loss, output), gradient = jitted(name)[0](*case, KEY)

    params = {name: leaf.astype(np.float64) for name, leaf in case.params.items()}
    constants = constants_of(config, case)
    np.testing.assert_allclose(loss, loss_of(config, params, case, constants), rtol=1e-4, atol=1e-5)
    errors = errors_by(config, params, case, constants)
    np.testing.assert_allclose(
        output.priorities, priorities_of(config, errors), rtol=1e-4, atol=1e-4
    )
    expected = gradient_of(config, params, case, constants)
    largest = max(float(np.abs(leaf).max()) for leaf in expected.values())
    for leaf, found in gradient.items():
        # Of parts that cancel each other float32 leaves the error of the largest: 5e-5 of it was
        # seen, where a reward was -70.
        np.testing.assert_allclose(
            found, expected[leaf], rtol=1e-3, atol=1e-5 + 2e-4 * largest, err_msg=leaf
        )


@pytest.mark.parametrize("name", _NAMES)
@settings(max_examples=20, deadline=None, derandomize=True)
@given(data=st.data())
def test_initial_priorities_are_those_of_the_stored_q_values(
    name: str, data: st.DataObject
) -> None:
    config = CONFIGS[name]
    steps = data.draw(cases(config)).sequence.steps
    q_values = np.asarray(steps.extras, np.float64)
    errors = errors_of(config, q_values, q_values, steps)
    without = steps._replace(timestep=steps.timestep._replace(observation=()))
    np.testing.assert_allclose(
        jitted(name)[1](without), priorities_of(config, errors), rtol=1e-4, atol=1e-4
    )
