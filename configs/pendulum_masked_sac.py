"""Recurrent SAC on Pendulum-v1 without its angular velocity, on two CPU cores.

The memoryless control: `--agent.network.core none`.

Seed 3: -171.4 over 100 episodes, after 28,576 steps, 61 seconds from start to exit. Two busy cores
of a CPU; 2026-11-22, commit d402e05.

Command: `seedrl train pendulum_masked_sac`.
"""

from seedrl.agents.sac import SacConfig
from seedrl.config import (
    Config,
    EnvironmentConfig,
    EvaluationConfig,
    LearningConfig,
    ReplayConfig,
    ServingConfig,
)
from seedrl.networks.config import BoxNetworkConfig


def config() -> Config:
    return Config(
        environment=EnvironmentConfig(id="envs_server.envs.masked_pendulum:make"),
        agent=SacConfig(
            network=BoxNetworkConfig(
                torso="mlp", core="lstm", core_size=64, actor_sizes=(64, 64), critic_sizes=(64, 64)
            ),
            burn_in=4,
            unroll=16,
            gamma=0.98,
            actor_learning_rate=1e-3,
            critic_learning_rate=2e-3,
            temperature_learning_rate=1e-3,
            tau=0.01,
        ),
        serving=ServingConfig(training_slots=16, evaluation_slots=100),
        replay=ReplayConfig(
            capacity_steps=100_000,
            min_steps=2_000,
            priority_exponent=0.0,
            importance_exponent=0.0,
            ratio=64.0,
        ),
        learning=LearningConfig(batch_sequences=32, total_steps=200_000),
        evaluation=EvaluationConfig(interval_seconds=2.0, target_return=-200.0),
    )
