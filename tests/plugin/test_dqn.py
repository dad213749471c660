"""The plug-in package by itself: its loss by hand, and that its agent can learn its environment."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from seedrl_plugin.dqn import DQNConfig
from seedrl_plugin.env import RIGHT

from seedrl.agents.agent import Agent
from seedrl.agents.gradient_update import GradientUpdate
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec
from seedrl.types import Sequence, StepType, StoredStep, TimeStep

FIRST, MID, LAST = StepType.FIRST, StepType.MID, StepType.LAST
SPEC = EnvSpec(ArraySpec((2,), "float32"), DiscreteSpec(2))
KEY = jax.random.key(0)

# Q(s, a) = relu(s) @ output, with s of non-negative numbers.
ONLINE = {
    "hidden": np.eye(2, dtype=np.float32),
    "bias": np.zeros((1, 2), np.float32),
    "output": np.array([[1, 2], [3, 4]], np.float32),
}
TARGET = {**ONLINE, "output": 10 * ONLINE["output"]}


def transitions() -> StoredStep:
    """An ordinary transition, a termination, a truncation, and one from LAST to FIRST."""
    types = np.array([[FIRST, MID, MID, LAST], [MID, LAST, LAST, FIRST]], np.uint8)
    reward = np.array([[9, 9, 9, 9], [1, 1, 1, 0]], np.float32)
    discount = np.array([[1, 1, 1, 0], [1, 0, 1, 1]], np.float32)
    before = np.tile(np.array([1, 0], np.float32), (4, 1))
    after = np.tile(np.array([0, 1], np.float32), (4, 1))
    timestep = TimeStep(types, reward, discount, np.stack([before, after]))
    action = np.array([[0, 1, 0, 1], [0, 0, 0, 0]], np.int32)
    q_values = np.stack([before @ ONLINE["output"], after @ ONLINE["output"]])
    return StoredStep(timestep, action, np.zeros((2, 4), np.int32), q_values)


def gradient_update(agent: Agent) -> GradientUpdate:
    assert isinstance(agent.update, GradientUpdate)
    return agent.update


def test_the_loss_by_hand() -> None:
    agent = DQNConfig(gamma=0.5).build(SPEC)
    weights = jnp.array([1.0, 0.5, 1.0, 1.0])
    loss, output = jax.jit(gradient_update(agent).loss)(
        ONLINE, TARGET, Sequence(transitions(), ()), weights, KEY
    )
    # Targets: 1 + 0.5 * 40; 1; 1 + 0.5 * 40. Predictions: 1, 2, 1. The last row is not trained.
    np.testing.assert_allclose(output.priorities, [20, 1, 20, 0])
    assert float(loss) == pytest.approx((200 + 0.5 * 0.5 + 200 + 0) / 4)


def test_the_loss_leads_to_walking_right() -> None:
    length = 5
    agent = DQNConfig(gamma=0.8).build(EnvSpec(ArraySpec((length,), "float32"), DiscreteSpec(2)))
    cells, actions = (grid.ravel() for grid in np.mgrid[0 : length - 1, 0:2])
    reached = np.maximum(cells + 2 * actions - 1, 0)
    is_end = reached == length - 1
    steps = StoredStep(
        TimeStep(
            np.stack([np.full(8, MID), np.where(is_end, LAST, MID)]).astype(np.uint8),
            np.stack([np.zeros(8), is_end]).astype(np.float32),
            np.stack([np.ones(8), ~is_end]).astype(np.float32),
            np.eye(length, dtype=np.float32)[np.stack([cells, reached])],
        ),
        np.stack([actions, actions]).astype(np.int32),
        (),
        (),
    )

    update = functools.partial(agent.update, mean=lambda tree: tree)

    @jax.jit
    def train(state):
        def one_update(state, _):
            state, _ = update(state, sequence, jnp.ones(8), KEY)
            return state._replace(updates=state.updates + 1), ()

        return jax.lax.scan(one_update, state, length=800)[0]

    sequence = Sequence(steps, ())
    params = train(jax.jit(lambda key: agent.init_state(agent.init(key)))(KEY)).params
    timestep = TimeStep((), (), (), jnp.eye(length)[: length - 1])
    output = jax.jit(agent.act)(params, (), timestep, jnp.zeros(length - 1), KEY)
    np.testing.assert_array_equal(output.action, np.full(length - 1, RIGHT))
    np.testing.assert_allclose(output.extras[:, RIGHT], [0.512, 0.64, 0.8, 1.0], atol=0.02)
