"""Ape-X DQN on LunarLander-v3, 200: episodes that terminate or are cut after 1,000 steps.

Needs Box2D: `pip install '.[box2d]'` where env servers run.

Seeds 1 to 4: 217.0 to 226.9 over the 100 confirming episodes, after 477,663 to 782,711 steps, 161
to 240 seconds from start to exit. Two cores of a Xeon at 2.5 GHz; 2026-11-22, commit 3e6ed55.
"""

from seedrl.agents.apex import ApexConfig
from seedrl.config import Config, EnvironmentConfig, EvaluationConfig, LearningConfig
from seedrl.networks.config import QNetworkConfig
from seedrl.replay.prioritized import ReplayConfig


def config() -> Config:
    return Config(
        environment=EnvironmentConfig(id="LunarLander-v3"),
        agent=ApexConfig(
            network=QNetworkConfig(torso_sizes=(128,), core="none", head_sizes=(128,)),
            reward_scale=0.1,
            learning_rate=5e-4,
            adam_epsilon=1e-5,
            target_update_interval=400,
        ),
        replay=ReplayConfig(
            capacity_steps=200_000,
            page_steps=16,
            priority_exponent=0.6,
            importance_exponent=0.4,
            ratio=8.0,
        ),
        learning=LearningConfig(batch_sequences=128, total_steps=2_000_000),
        evaluation=EvaluationConfig(interval_steps=10_000, target_return=200.0),
    )
