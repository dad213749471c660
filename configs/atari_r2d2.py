"""R2D2 on Atari with the settings of the paper (Kapturowski et al. 2019, table 2).

Another game: `--environment.id ALE/Breakout-v5`. Not from the paper: the replay ratio, which it
does not set (its learner runs freely), is SEED RL's 0.75, as are the gradient norm and the dense
layer before the LSTM; `min_steps` is ours. Replay takes 29 GiB on the accelerator. Not measured.
"""

from seedrl.agents.r2d2 import R2D2Config
from seedrl.config import (
    Config,
    EnvironmentConfig,
    EvaluationConfig,
    LaunchConfig,
    LearningConfig,
    ServingConfig,
)
from seedrl.networks.config import QNetworkConfig
from seedrl.replay.prioritized import ReplayConfig


def config() -> Config:
    return Config(
        environment=EnvironmentConfig(
            id="ALE/Pong-v5",
            arguments='{"full_action_space": true}',
            vectorization="atari",
            frames_per_step=4,
        ),
        # Defaults: docs/agents/r2d2.md lists their differences from the paper.
        agent=R2D2Config(network=QNetworkConfig(torso="nature", frame_stack=4)),
        serving=ServingConfig(training_slots=256, evaluation_slots=16),
        replay=ReplayConfig(capacity_steps=4_000_000, min_steps=100_000, ratio=0.75),
        learning=LearningConfig(
            batch_sequences=64, total_steps=2_500_000_000, keep_freed_memory=True
        ),
        evaluation=EvaluationConfig(interval_steps=5_000_000, episodes=16),
        launch=LaunchConfig(env_servers=16),
    )
