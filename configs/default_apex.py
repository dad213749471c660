"""Ape-X DQN for an environment of your own with discrete actions, without memory.

    seedrl train default_apex --environment.id YOUR_ID --learning.total-steps 300000

Observations and rewards are normalized: neither their scale nor that of returns matters.
"""

from seedrl.agents.apex import ApexConfig
from seedrl.config import Config, EnvironmentConfig, LearningConfig
from seedrl.networks.config import QNetworkConfig
from seedrl.replay.prioritized import ReplayConfig


def config() -> Config:
    return Config(
        environment=EnvironmentConfig(id="CartPole-v1"),
        agent=ApexConfig(
            network=QNetworkConfig(
                torso_sizes=(128,), core="none", head_sizes=(128,), frame_stack=1
            ),
            normalize_observations=True,
            normalize_rewards=True,
            learning_rate=5e-4,
            adam_epsilon=1e-8,
            # Random actions at first: rewards that are far away are found sooner.
            epsilon_decay_steps=50_000,
            target_update_interval=200,
        ),
        replay=ReplayConfig(
            min_steps=2_560,
            page_steps=16,
            priority_exponent=0.6,
            importance_exponent=0.4,
            ratio=8.0,
        ),
        learning=LearningConfig(batch_sequences=128),
    )
