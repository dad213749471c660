"""R2D2 on CartPole-v1 without its two velocities: needs memory.

For long episodes whose return is far away. On immediate rewards n = 5 at gamma 0.997 is slow: 2 M
steps where `--agent.n-steps 3 --agent.gamma 0.9 --agent.unroll 20` took 0.6 M.

Seeds 0 to 4 with `--learning.total-steps 300_000`: 498.0, 493.2, 499.0, 215.2 and 497.8; without
memory (`--agent.network.core none`) 35.9 to 43.1. Seed 0 takes 146 seconds. Two busy cores of a
Xeon at 2.5 GHz; 2026-11-22, commit f99190b.

Command: `seedrl train cartpole_masked_r2d2`.
"""

from seedrl.agents.r2d2 import R2D2Config
from seedrl.config import (
    Config,
    EnvironmentConfig,
    EvaluationConfig,
    LearningConfig,
    ReplayConfig,
    ServingConfig,
)
from seedrl.networks.config import QNetworkConfig


def config() -> Config:
    return Config(
        environment=EnvironmentConfig(id="envs_server.envs.masked_cartpole:make"),
        agent=R2D2Config(
            network=QNetworkConfig(
                torso="mlp",
                torso_sizes=(64,),
                core="lstm",
                core_size=64,
                head_sizes=(64,),
                frame_stack=1,
            ),
            burn_in=10,
            unroll=10,
            n_steps=20,
            stride=10,
            gamma=0.99,
            learning_rate=1e-3,
            adam_epsilon=1e-5,
            target_update_interval=50,
        ),
        serving=ServingConfig(training_slots=32, evaluation_slots=50),
        replay=ReplayConfig(capacity_steps=100_000, min_steps=2_560, ratio=4.0),
        learning=LearningConfig(batch_sequences=64, total_steps=1_000_000),
        evaluation=EvaluationConfig(interval_seconds=2.0, target_return=475.0),
    )
