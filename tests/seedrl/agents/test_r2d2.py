"""R2D2: acting equals replaying, and the loss is that of the paper."""

import functools
from typing import Any

import jax
import numpy as np
import pytest

from seedrl.agents.agent import Agent
from seedrl.agents.r2d2 import R2D2Config
from seedrl.networks.config import QNetworkConfig
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec
from seedrl.types import Sequence, StepType, StoredStep, TimeStep
from tests.seedrl.random_parameters import random_parameters

FIRST, MID, LAST = StepType.FIRST, StepType.MID, StepType.LAST
SPEC = EnvSpec(
    {"image": ArraySpec((3, 3), "uint8"), "speed": ArraySpec((2,), "float32")}, DiscreteSpec(3)
)
NETWORK = QNetworkConfig(torso="mlp", torso_sizes=(), core_size=5, head_sizes=(), frame_stack=3)
CONFIG = R2D2Config(
    network=NETWORK, burn_in=3, unroll=4, n_steps=2, stride=2, gamma=0.9, reward_scale=0.5
)
ROWS, B = 14, 3
KEY = jax.random.key(9)


@functools.cache
def built() -> tuple[Agent, Any, Any]:
    """The agent with jitted functions, and parameters of the online and the target network.

    Its loss comes with the gradients of the parameters and of the speeds that are observed.
    """
    agent = CONFIG.build(SPEC)
    inner = agent.update.loss

    def loss_and_gradients(params: Any, target: Any, sequence: Sequence, *rest: Any) -> Any:
        timestep = sequence.steps.timestep

        def loss(params: Any, speed: jax.Array) -> Any:
            moved = timestep._replace(observation={**timestep.observation, "speed": speed})
            steps = sequence.steps._replace(timestep=moved)
            return inner(params, target, sequence._replace(steps=steps), *rest)

        speed = timestep.observation["speed"]
        return jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)(params, speed)

    agent = agent._replace(
        act=jax.jit(agent.act),
        update=agent.update._replace(loss=jax.jit(loss_and_gradients)),
        initial_priorities=jax.jit(agent.initial_priorities),
    )
    return agent, random_parameters(agent.init), random_parameters(agent.init, seed=1)


def random_timesteps() -> TimeStep:
    """Three streams: episodes that terminate and are truncated, and one that never ends."""
    random = np.random.default_rng(5)
    types = np.full((ROWS, B), MID, np.uint8)
    types[0] = FIRST
    discount = np.ones((ROWS, B), np.float32)
    for row, stream, is_terminated in ((4, 0, True), (9, 0, False), (6, 1, False)):
        types[row : row + 2, stream] = [LAST, FIRST]
        discount[row, stream] = 1 - is_terminated
    reward = np.where(types == FIRST, 0, random.normal(size=types.shape)).astype(np.float32)
    observation = {
        "image": random.integers(0, 256, (ROWS, B, 3, 3), dtype=np.uint8),
        "speed": random.normal(size=(ROWS, B, 2)).astype(np.float32),
    }
    return TimeStep(types, reward, discount, observation)


@functools.cache
def acted() -> tuple[StoredStep, list[Any]]:
    """A stream acted on step by step, and the carry before every row."""
    agent, params, _ = built()
    timesteps = random_timesteps()
    carry, carries, actions, extras = agent.initial_carry(B), [], [], []
    for row in range(ROWS):
        carries.append(carry)
        timestep = jax.tree.map(lambda leaf, row=row: leaf[row], timesteps)
        output = agent.act(
            params, carry, timestep, np.full(B, 0.8, np.float32), jax.random.key(row)
        )
        carry = output.carry
        actions.append(output.action)
        extras.append(output.extras)
    versions = np.zeros((ROWS, B), np.int32)
    return StoredStep(timesteps, np.stack(actions), versions, np.stack(extras)), carries


def window_at(start: int) -> Sequence:
    steps, carries = acted()
    return rows_of(Sequence(steps, carries[start]), slice(start, start + CONFIG.window.length))


def rows_of(sequence: Sequence, rows: slice) -> Sequence:
    return sequence._replace(steps=jax.tree.map(lambda leaf: leaf[rows], sequence.steps))


def with_rewards(sequence: Sequence, reward: np.ndarray) -> Sequence:
    timestep = sequence.steps.timestep._replace(reward=reward)
    return sequence._replace(steps=sequence.steps._replace(timestep=timestep))


@pytest.mark.parametrize("start", range(ROWS - CONFIG.window.length + 1))
def test_replaying_from_the_stored_carry_gives_the_acting_q_values(start: int) -> None:
    """With unchanged parameters the loss sees what acting saw, at every row and across resets.

    With both networks equal and all rows alike, initial priorities (from the stored Q-values) and
    priorities of the loss (from the replayed ones) are the same function of the same numbers.
    """
    agent, params, _ = built()
    sequence = window_at(start)
    (_, output), _ = agent.update.loss(params, params, sequence, np.ones(B, np.float32), KEY)
    stored = sequence.steps._replace(timestep=sequence.steps.timestep._replace(observation=()))
    np.testing.assert_allclose(output.priorities, agent.initial_priorities(stored), atol=1e-5)


def test_no_gradient_flows_into_the_burn_in() -> None:
    agent, params, target = built()
    weights = np.ones(B, np.float32)
    _, (_, gradient) = agent.update.loss(params, target, window_at(2), weights, KEY)
    reached = np.any(np.abs(gradient) > 0, axis=(1, 2))
    trained = np.arange(CONFIG.window.length) >= CONFIG.burn_in
    trained &= np.arange(CONFIG.window.length) < CONFIG.burn_in + CONFIG.unroll
    np.testing.assert_array_equal(reached, trained)


def test_what_must_be_ignored_may_be_huge() -> None:
    """The reward of a FIRST row and the action on a LAST row reach neither loss nor gradient."""
    agent, params, target = built()
    sequence, weights = window_at(3), np.ones(B, np.float32)
    types = sequence.steps.timestep.step_type
    assert (types[CONFIG.burn_in :] == LAST).any()
    clean = agent.update.loss(params, target, sequence, weights, KEY)
    poisoned = with_rewards(
        sequence, np.where(types == FIRST, np.float32(1e9), sequence.steps.timestep.reward)
    )
    action = np.where(types == LAST, (sequence.steps.action + 1) % 3, sequence.steps.action)
    poisoned = poisoned._replace(steps=poisoned.steps._replace(action=action))
    found = agent.update.loss(params, target, poisoned, weights, KEY)
    jax.tree.map(np.testing.assert_array_equal, found, clean)


def test_the_previous_action_is_the_executed_one() -> None:
    agent, params, _ = built()
    timestep = jax.tree.map(lambda leaf: leaf[1], random_timesteps())
    for seed in range(4):
        output = agent.act(
            params, agent.initial_carry(B), timestep, np.ones(B, np.float32), jax.random.key(seed)
        )
        np.testing.assert_array_equal(output.carry.previous_action, output.action)
    steps, _ = acted()
    greedy = np.argmax(steps.extras, axis=-1)
    assert np.any(greedy != steps.action)  # so that the tests above tell the two apart
