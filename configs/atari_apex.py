"""Ape-X DQN on Atari with the settings of the paper (Horgan et al. 2018, appendix C), by Adam.

Another game: `--environment.id ALE/Breakout-v5`. Not from the paper: its learner runs freely, at 19
batches a second next to 12,500 steps, from which `ratio` follows; acting uses the newest
parameters; the oldest transition goes when replay is full, which takes 14 GB. Not measured.
"""

from seedrl.agents.apex import ApexConfig
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
        agent=ApexConfig(
            network=QNetworkConfig(torso="nature", torso_sizes=(), core="none", frame_stack=4),
            earlier_steps=3,
            reward_clip=1.0,
        ),
        serving=ServingConfig(training_slots=360, evaluation_slots=16),
        replay=ReplayConfig(
            capacity_steps=2_000_000,
            min_steps=50_000,
            page_steps=16,
            priority_exponent=0.6,
            importance_exponent=0.4,
            ratio=0.8,
        ),
        learning=LearningConfig(
            batch_sequences=512, total_steps=5_700_000_000, keep_freed_memory=True
        ),
        evaluation=EvaluationConfig(interval_steps=5_000_000, episodes=16),
        launch=LaunchConfig(env_servers=8),
    )
