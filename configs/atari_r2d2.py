"""R2D2 on Atari with the settings of the paper (Kapturowski et al. 2019, table 2).

Another game: `--environment.id ALE/Breakout-v5`. Not from the paper: the replay ratio, which it
does not set (its learner runs freely), is SEED RL's 0.75; `min_steps` is ours. Replay takes 28 GB
on the accelerator.

Not measured. Command: `seedrl train atari_r2d2`.
"""

from seedrl.agents.r2d2 import R2D2Config
from seedrl.config import (
    Config,
    EnvironmentConfig,
    EvaluationConfig,
    LaunchConfig,
    LearningConfig,
    ReplayConfig,
    ServingConfig,
)
from seedrl.networks.config import QNetworkConfig


def config() -> Config:
    return Config(
        environment=EnvironmentConfig(
            id="ALE/Pong-v5",
            arguments='{"full_action_space": true}',
            vectorization="atari",
            frames_per_step=4,
        ),
        agent=R2D2Config(
            network=QNetworkConfig(
                torso="nature", torso_sizes=(512,), core_size=512, head_sizes=(512,), frame_stack=4
            ),
            burn_in=40,
            unroll=80,
            n_steps=5,
            stride=40,
            gamma=0.997,
            learning_rate=1e-4,
            adam_epsilon=1e-3,
            target_update_interval=2_500,
        ),
        serving=ServingConfig(training_slots=256, evaluation_slots=16),
        replay=ReplayConfig(
            capacity_steps=4_000_000,
            min_steps=100_000,
            priority_exponent=0.9,
            importance_exponent=0.6,
            ratio=0.75,
        ),
        learning=LearningConfig(
            batch_sequences=64, total_steps=2_500_000_000, keep_freed_memory=True
        ),
        evaluation=EvaluationConfig(interval_seconds=300.0, episodes=16),
        launch=LaunchConfig(env_servers=16),
    )
