"""With `normalize_rewards` no agent's update depends on the scale of rewards."""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from seedrl.agents.agent import Agent
from seedrl.agents.apex import ApexConfig
from seedrl.agents.impala import ImpalaConfig
from seedrl.agents.ppo import PpoConfig
from seedrl.agents.r2d2 import R2D2Config
from seedrl.agents.sac import SacConfig
from seedrl.networks.config import ActorCriticConfig, BoxNetworkConfig, QNetworkConfig
from seedrl.specs import BoxSpec
from tests.seedrl.agents.actor_critics import SPEC, B, acted, random_timesteps, window_of

# Normalization is around an agent, not in it: test_normalization.py.
pytestmark = pytest.mark.gate

_SIZES: dict[str, Any] = {"torso": "mlp", "torso_sizes": (), "core_size": 5, "head_sizes": (4,)}
_Q = QNetworkConfig(**_SIZES, frame_stack=1)
_AGENTS: dict[str, Any] = {
    "r2d2": R2D2Config(network=_Q, burn_in=2, unroll=6, n_steps=3, stride=2, adam_epsilon=1e-8),
    "apex": ApexConfig(network=dataclasses.replace(_Q, core="none")),
    "impala": ImpalaConfig(network=ActorCriticConfig(**_SIZES, frame_stack=1), unroll=8),
    "ppo": PpoConfig(network=ActorCriticConfig(**_SIZES, core="none", frame_stack=1), unroll=8),
    "sac": SacConfig(
        network=BoxNetworkConfig(torso="mlp", actor_sizes=(4,), critic_sizes=(4,)), unroll=3
    ),
}
_BOX = dataclasses.replace(SPEC, action=BoxSpec((2,), (-1.0, -1.0), (1.0, 1.0)))


class Built(NamedTuple):
    """An agent and what it is tried with, compiled; all on one device."""

    agent: Agent
    updated: Any
    with_statistics: Any


@functools.cache
def built(name: str) -> Built:
    config = dataclasses.replace(_AGENTS[name], normalize_rewards=True)
    agent = config.build(_BOX if name == "sac" else SPEC)
    mean = {"mean": lambda tree: tree}

    @jax.jit
    def updated(state: Any, sequence: Any) -> Any:
        batch = agent.preprocess_batch(state, sequence, np.ones(B, np.float32))
        return agent.update(state, *batch, jax.random.key(3), **mean)[0]

    @jax.jit
    def with_statistics(state: Any, sequence: Any) -> Any:
        return agent.update_statistics(state, sequence, np.ones(B, np.float32), **mean)[0]

    names = ("init", "init_state", "act", "initial_priorities")
    functions = {name: jax.jit(each) for name in names if (each := getattr(agent, name))}
    functions["initial_carry"] = jax.jit(agent.initial_carry, static_argnums=0)
    return Built(agent._replace(**functions), updated, with_statistics)


@functools.cache
def learned(name: str, scale: float, batches: int = 2) -> tuple[Any, Any]:
    """Parameters after an update, and initial priorities of the experience it learned from.

    `batches`: number of batches that the statistics have seen, the present one included.
    """
    agent, updated, with_statistics = built(name)
    timesteps = random_timesteps()
    timesteps = timesteps._replace(reward=np.float32(scale) * timesteps.reward)
    state = agent.init_state(agent.init(jax.random.key(0)))
    # The statistics of the first batch are those by which the second is acted and learned from.
    for _ in range(batches):
        stream = acted(agent, agent.actor_params(state.params), timesteps)
        sequence = window_of(stream, 1, agent.window.length)
        sequence = sequence._replace(carry=agent.stored_carry(sequence.carry))
        before, state = state, with_statistics(state, sequence)
    state = updated(before, sequence)
    steps = sequence.steps._replace(timestep=sequence.steps.timestep._replace(observation=()))
    has_priorities = name in ("r2d2", "apex")
    priorities = agent.initial_priorities(steps) if has_priorities else ()
    return state.params.agent, priorities


@pytest.mark.parametrize("name", _AGENTS)
def test_an_update_is_the_same_at_any_scale(name: str) -> None:
    scale = 100.0
    for found, expected in zip(learned(name, scale), learned(name, 1.0), strict=True):
        same = functools.partial(np.testing.assert_allclose, rtol=2e-3, atol=2e-5)
        jax.tree.map(same, found, expected)


@pytest.mark.parametrize("name", ["ppo", "sac"])
def test_the_first_update_is_too(name: str) -> None:
    """They do not see rewards when they act; of Ape-X and R2D2 the first priorities are raw."""
    found, expected = (learned(name, scale, batches=1)[0] for scale in (100.0, 1.0))
    same = functools.partial(np.testing.assert_allclose, rtol=2e-3, atol=2e-5)
    jax.tree.map(same, found, expected)
