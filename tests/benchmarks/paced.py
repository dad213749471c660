"""Runs that are slow on purpose, whatever the machine: environment, acting and updates sleep.

So a case leaves the cores to all the rest. `config` has Ape-X, which learns from replay.
"""

import time
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from seedrl.agents.agent import ActOutput, Agent, AgentState, UpdateOutput
from seedrl.agents.apex import ApexConfig
from seedrl.agents.ppo import PpoConfig
from seedrl.config import (
    CheckpointConfig,
    Config,
    EnvironmentConfig,
    EvaluationConfig,
    LaunchConfig,
    LearningConfig,
    LoggingConfig,
    ServingConfig,
)
from seedrl.networks.config import QNetworkConfig
from seedrl.replay.prioritized import ReplayConfig
from seedrl.specs import EnvSpec
from seedrl.types import Array


def slowed(agent: Agent, *, act_ms: float, update_ms: float) -> Agent:
    """The agent, whose calls of `act` and `update` sleep so long after their work."""

    def act(*arguments: Any) -> ActOutput:
        output = agent.act(*arguments)
        return output._replace(action=_later(output.action, act_ms))

    def update(*arguments: Any, **named: Any) -> tuple[AgentState, UpdateOutput]:
        state, output = agent.update(*arguments, **named)
        loss = _later(output.metrics["loss"], update_ms)
        return state, output._replace(metrics={**output.metrics, "loss": loss})

    return agent._replace(act=act, update=update)


def _later(value: Array, milliseconds: float) -> Array:
    if not milliseconds:
        return value

    def sleep(value: Any) -> np.ndarray:
        time.sleep(milliseconds / 1e3)
        return np.asarray(value)

    return jax.pure_callback(sleep, jax.ShapeDtypeStruct(value.shape, value.dtype), value)


@dataclass(frozen=True, kw_only=True)
class SlowApexConfig(ApexConfig):
    """Ape-X.

    Attributes:
      act_ms: sleep after acting on a batch.
      update_ms: sleep after an update.
    """

    act_ms: float = 0.0
    update_ms: float = 0.0

    def build(self, spec: EnvSpec) -> Agent:
        return slowed(super().build(spec), act_ms=self.act_ms, update_ms=self.update_ms)


@dataclass(frozen=True, kw_only=True)
class SlowPpoConfig(PpoConfig):
    """PPO.

    Attributes:
      epoch_ms: sleep after an epoch.
    """

    epoch_ms: float = 0.0

    def build(self, spec: EnvSpec) -> Agent:
        return slowed(super().build(spec), act_ms=0.0, update_ms=self.epoch_ms)


def config() -> Config:
    """Ape-X with a small network, of which nothing is evaluated or saved."""
    return Config(
        environment=EnvironmentConfig(id="tests.benchmarks.paced_environment:Paced"),
        agent=SlowApexConfig(
            network=QNetworkConfig(torso_sizes=(64,), core="none", head_sizes=(64,)), n_steps=1
        ),
        serving=ServingConfig(training_slots=8, evaluation_slots=0),
        replay=ReplayConfig(capacity_steps=20_000, min_steps=256, page_steps=8, ratio=0.25),
        learning=LearningConfig(batch_sequences=8, total_steps=10**9, num_devices=1),
        evaluation=EvaluationConfig(target_return=None),
        checkpoint=CheckpointConfig(interval_seconds=10**6),
        logging=LoggingConfig(learning_curve=False),
        launch=LaunchConfig(env_servers=2),
    )
