"""R2D2: acting equals replaying, and the loss is that of the paper."""

import functools
from typing import Any

import jax
import numpy as np
import pytest

from seedrl.agents.agent import Agent
from seedrl.agents.r2d2 import R2D2Config
from seedrl.networks.config import QNetworkConfig
from seedrl.types import Sequence, StoredStep
from tests.seedrl.agents.actor_critics import ROWS, SPEC, B, acted, window_of
from tests.seedrl.random_parameters import random_parameters

NETWORK = QNetworkConfig(torso="mlp", torso_sizes=(), core_size=5, head_sizes=(), frame_stack=3)
CONFIG = R2D2Config(
    network=NETWORK, burn_in=3, unroll=4, n_steps=2, stride=2, gamma=0.9, reward_scale=0.5
)
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


@functools.cache
def stream() -> tuple[StoredStep, list[Any]]:
    return acted(*built()[:2])


def window_at(start: int) -> Sequence:
    return window_of(stream(), start, CONFIG.window.length)


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
