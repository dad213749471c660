"""R2D2 on Pong with settings that are fast on one accelerator.

Shorter sequences, a smaller core, a higher learning rate and a higher replay ratio than the paper's
(`atari_r2d2`). Replay takes 1.4 GB. Not measured.
"""

from seedrl.agents.r2d2 import R2D2Config
from seedrl.config import Config, EnvironmentConfig, EvaluationConfig, LearningConfig, ServingConfig
from seedrl.networks.config import QNetworkConfig
from seedrl.replay.prioritized import ReplayConfig


def config() -> Config:
    return Config(
        environment=EnvironmentConfig(id="ALE/Pong-v5", vectorization="atari", frames_per_step=4),
        agent=R2D2Config(
            network=QNetworkConfig(
                torso="nature", torso_sizes=(512,), core_size=256, head_sizes=(256,), frame_stack=4
            ),
            burn_in=20,
            unroll=40,
            stride=20,
            learning_rate=3e-4,
            max_gradient_norm=40.0,
            target_update_interval=1_000,
        ),
        serving=ServingConfig(training_slots=64, evaluation_slots=8),
        replay=ReplayConfig(capacity_steps=200_000, min_steps=10_240, ratio=2.0),
        learning=LearningConfig(batch_sequences=32, total_steps=10_000_000, keep_freed_memory=True),
        evaluation=EvaluationConfig(interval_steps=50_000, episodes=8, target_return=20.0),
    )
