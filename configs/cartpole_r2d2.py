"""R2D2 on CartPole-v1: the smallest run that learns, on two CPU cores.

Scaled down from the paper to an episode of at most 500 steps and four numbers.

Seeds 0 to 4: 498.0 to 500.0 over 100 episodes of `seedrl evaluate`, after 164,484 to 261,479 steps,
26 to 41 seconds from start to exit. Two cores of a Xeon at 2.5 GHz; 2026-11-22, commit 2124f83.
"""

from seedrl.agents.r2d2 import R2D2Config
from seedrl.config import Config, EnvironmentConfig, EvaluationConfig, LearningConfig, ServingConfig
from seedrl.networks.config import QNetworkConfig
from seedrl.replay.prioritized import ReplayConfig


def config() -> Config:
    return Config(
        environment=EnvironmentConfig(id="CartPole-v1"),
        agent=R2D2Config(
            network=QNetworkConfig(torso_sizes=(64,), core_size=64, head_sizes=(64,)),
            burn_in=4,
            unroll=20,
            n_steps=10,
            stride=10,
            gamma=0.99,
            learning_rate=3e-3,
            adam_epsilon=1e-5,
            target_update_interval=50,
        ),
        serving=ServingConfig(training_slots=32, evaluation_slots=100),
        replay=ReplayConfig(capacity_steps=100_000, min_steps=2_560, ratio=4.0),
        learning=LearningConfig(batch_sequences=16, total_steps=1_000_000),
        evaluation=EvaluationConfig(interval_steps=2_000, target_return=475.0),
    )
