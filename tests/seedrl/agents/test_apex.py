"""Ape-X: the worked examples, and an oracle in float64."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seedrl.agents.apex import ApexConfig
from seedrl.rl.priorities import importance_weights, sampling_weight_of
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec
from seedrl.types import Sequence, StepType, StoredStep, TimeStep, Tree
from tests.gated import all_but
from tests.seedrl.agents.double_q import errors_of, priorities_of
from tests.seedrl.agents.table_network import Tables
from tests.seedrl.rl.episodes import any_timesteps

FIRST, MID, LAST = StepType.FIRST, StepType.MID, StepType.LAST
KEY = jax.random.key(0)
B = 3
STATES, ACTIONS = 5, 3
SPEC = EnvSpec(ArraySpec((), "int32"), DiscreteSpec(ACTIONS))
CONFIGS = {
    "three steps": ApexConfig(network=Tables(states=STATES), gamma=0.9),
    "behind two rows": ApexConfig(
        network=Tables(states=STATES),
        earlier_steps=2,
        n_steps=2,
        gamma=0.8,
        reward_scale=0.5,
        reward_clip=1,
    ),
    "one step": ApexConfig(network=Tables(states=STATES), n_steps=1),
}


class Case(NamedTuple):
    """What a loss is given."""

    params: Tree
    target: Tree
    sequence: Sequence
    weights: np.ndarray


@functools.cache
def jitted(name: str) -> tuple[Any, Any]:
    """The loss with its gradient, and initial priorities."""
    agent = CONFIGS[name].build(SPEC)
    update: Any = agent.update
    loss = jax.jit(jax.value_and_grad(update.loss, has_aux=True))
    return loss, jax.jit(agent.initial_priorities)


def sequence_of(
    rows: list[tuple[StepType, float, float, int, int]], q_values: np.ndarray
) -> Sequence:
    """One sequence of rows: step type, reward, discount, state and action.

    `q_values [STATES, A]` are those of acting.
    """
    types, reward, discount, state, action = (
        np.array(column) for column in zip(*rows, strict=True)
    )
    timestep = TimeStep(
        types.astype(np.uint8), np.float32(reward), np.float32(discount), np.int32(state)
    )
    steps = StoredStep(timestep, np.int32(action), np.zeros(len(rows), np.int32), q_values[state])
    return Sequence(jax.tree.map(lambda leaf: leaf[:, None], steps), ())


# Rewards 1, 0, 2; row 3: online Q = 1, 3 and target Q = 5, 2. Then r 1 and 5, terminated: what lies
# behind must not matter. Then a LAST row itself.
EXAMPLES = [
    [(MID, 7, 1, 0, 1), (MID, 1, 1, 1, 0), (MID, 0, 1, 1, 0), (MID, 2, 1, 3, 0)],
    [(FIRST, 0, 1, 2, 0), (MID, 1, 1, 1, 1), (LAST, 5, 0, 3, 1), (FIRST, 1e9, 1, 4, 2)],
    [(LAST, 7, 0, 0, 1), (FIRST, 1e9, 1, 1, 0), (MID, 1e9, 1, 1, 0), (MID, 1e9, 1, 3, 0)],
]
ONLINE = {"table": np.float32([[0, 3, 0], [9, 9, 9], [5, 0, 0], [1, 3, 0], [9, 9, 9]])}
TARGET = {"table": np.float32([[8, 8, 8], [8, 8, 8], [8, 8, 8], [5, 2, 0], [8, 8, 8]])}


def test_the_worked_examples() -> None:
    """Returns 4.078 and 5.5 against 3 and 5; then the masses, the shares and the weights."""
    sequence = jax.tree.map(
        lambda *columns: np.concatenate(columns, axis=1),
        *(sequence_of(rows, ONLINE["table"]) for rows in EXAMPLES),
    )
    loss, initial_priorities = jitted("three steps")
    (value, output), gradient = loss(ONLINE, TARGET, sequence, np.ones(B, np.float32), KEY)
    np.testing.assert_allclose(output.priorities, [1.078, 0.5, 0], rtol=1e-6)
    assert float(value) == pytest.approx(0.5 * (1.078**2 + 0.5**2) / 3, rel=1e-6)
    expected = np.zeros((STATES, ACTIONS))
    expected[0, 1], expected[2, 0] = -1.078 / 3, -0.5 / 3
    np.testing.assert_allclose(gradient["table"], expected, rtol=1e-6)
    assert float(output.metrics["trained_fraction"]) == pytest.approx(2 / 3)

    @jax.jit
    def drawn(priorities: jax.Array) -> tuple[jax.Array, ...]:
        mass = sampling_weight_of(priorities, 0.6)
        share = mass / jnp.sum(mass)
        return mass, share, importance_weights(share, 0.4, largest=lambda weight: weight)

    mass, share, weights = drawn(np.asarray(output.priorities)[:2])
    np.testing.assert_allclose(mass, [1.04610, 0.65975], rtol=1e-5)
    np.testing.assert_allclose(share, [0.61324, 0.38676], rtol=1e-4)
    np.testing.assert_allclose(weights, [0.83162, 1], rtol=1e-5)

    # Acting has no target: 1 + .81 * 2 + .729 * 3 = 4.807, against 3.
    priorities = initial_priorities(without_observations(sequence.steps))
    np.testing.assert_allclose(priorities, [1.807, 0.5, 0], rtol=1e-6)


def without_observations(steps: StoredStep) -> StoredStep:
    return steps._replace(timestep=steps.timestep._replace(observation=()))


@st.composite
def cases(draw: st.DrawFn, config: ApexConfig) -> Case:
    size = (config.window.length, B)
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    state = random.integers(0, STATES, size).astype(np.int32)
    timestep = draw(any_timesteps(size, 100))._replace(observation=state)
    action = random.integers(0, ACTIONS, size).astype(np.int32)
    extras = random.normal(size=(*size, ACTIONS)).astype(np.float32)
    sequence = Sequence(StoredStep(timestep, action, np.zeros_like(action), extras), ())
    tables = (
        {"table": 4 * random.normal(size=(STATES, ACTIONS)).astype(np.float32)} for _ in range(2)
    )
    return Case(*tables, sequence, random.uniform(0.1, 1, B).astype(np.float32))


@pytest.mark.parametrize("name", all_but(["three steps", "behind two rows"], CONFIGS))
@settings(max_examples=20, deadline=None, derandomize=True)
@given(data=st.data())
def test_loss_gradient_and_priorities_are_those_of_the_paper(
    name: str, data: st.DataObject
) -> None:
    config = CONFIGS[name]
    case = data.draw(cases(config))
    loss, initial_priorities = jitted(name)
    (value, output), gradient = loss(*case, KEY)

    steps = case.sequence.steps
    state, trained = steps.timestep.observation, config.earlier_steps
    online, target = (np.float64(params["table"])[state] for params in case[:2])
    errors = np.nan_to_num(errors_of(config, online, target, steps)[0])
    np.testing.assert_allclose(value, np.mean(case.weights * errors**2 / 2), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(output.priorities, np.abs(errors), rtol=1e-4, atol=1e-4)
    expected = np.zeros((STATES, ACTIONS))
    np.add.at(expected, (state[trained], steps.action[trained]), -case.weights * errors / B)
    np.testing.assert_allclose(gradient["table"], expected, rtol=1e-4, atol=1e-4)

    acting = np.asarray(steps.extras, np.float64)
    np.testing.assert_allclose(
        initial_priorities(without_observations(steps)),
        priorities_of(config, errors_of(config, acting, acting, steps)),
        rtol=1e-4,
        atol=1e-4,
    )


def test_a_transition_without_error_may_be_drawn_again_and_one_from_last_not() -> None:
    rows = [(MID, 0, 1, 0, 0), (LAST, 0, 0, 1, 0), (FIRST, 0, 1, 2, 0), (MID, 0, 1, 2, 0)]
    column = without_observations(sequence_of(rows, np.zeros((STATES, ACTIONS), np.float32)).steps)
    steps = jax.tree.map(lambda leaf: np.repeat(leaf, B, axis=1), column)
    steps.timestep.step_type[0, 1:] = LAST
    assert jitted("three steps")[1](steps).tolist() == [pytest.approx(1e-6), 0, 0]
