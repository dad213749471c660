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
def built() -> tuple[Agent, Any]:
    """The agent with jitted functions, and its parameters."""
    agent = CONFIG.build(SPEC)
    agent = agent._replace(
        act=jax.jit(agent.act),
        update=agent.update._replace(loss=jax.jit(agent.update.loss)),
        initial_priorities=jax.jit(agent.initial_priorities),
    )
    return agent, random_parameters(agent.init)


@functools.cache
def stream() -> tuple[StoredStep, list[Any]]:
    return acted(*built())


def window_at(start: int) -> Sequence:
    return window_of(stream(), start, CONFIG.window.length)


@pytest.mark.parametrize("start", range(ROWS - CONFIG.window.length + 1))
def test_replaying_from_the_stored_carry_gives_the_acting_q_values(start: int) -> None:
    """With unchanged parameters the loss sees what acting saw, at every row and across resets.

    With both networks equal and all rows alike, initial priorities (from the stored Q-values) and
    priorities of the loss (from the replayed ones) are the same function of the same numbers.
    """
    agent, params = built()
    sequence = window_at(start)
    _, output = agent.update.loss(params, params, sequence, np.ones(B, np.float32), KEY)
    stored = sequence.steps._replace(timestep=sequence.steps.timestep._replace(observation=()))
    np.testing.assert_allclose(output.priorities, agent.initial_priorities(stored), atol=1e-5)
