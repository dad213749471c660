"""R2D2 on CartPole-v1: the smallest run that learns, on two CPU cores.

Ends when frozen parameters score 475, the environment's own threshold, over 100 fresh episodes.
Everything is scaled down from the paper to an episode of at most 500 steps and four numbers.

Command: `seedrl train cartpole_r2d2`.

Lab record
  Seeds 0 to 4 (`--seed S`, then `seedrl evaluate RUN`): 498.0, 499.1, 500.0, 500.0 and 500.0 over
  100 episodes, after 164,484, 195,050, 261,479, 234,922 and 182,699 environment steps and 28, 26,
  41, 35 and 26 seconds from start to exit. Two cores of a Xeon at 2.5 GHz, no accelerator;
  2026-11-22, commit 2124f83.
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
    """R2D2 on CartPole-v1."""
    return Config(
        environment=EnvironmentConfig(id="CartPole-v1"),
        agent=R2D2Config(
            network=QNetworkConfig(
                torso="mlp",
                torso_sizes=(64,),
                core="lstm",
                core_size=64,
                head_sizes=(64,),
                frame_stack=1,
            ),
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
        evaluation=EvaluationConfig(
            interval_seconds=2.0, episodes=20, target_return=475.0, confirm_episodes=100
        ),
    )
