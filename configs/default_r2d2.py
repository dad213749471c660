"""R2D2 for an environment of your own with discrete actions, with memory.

    seedrl train default_r2d2 --environment.id YOUR_ID --learning.total-steps 300000

Observations and rewards are normalized: neither their scale nor that of returns matters.
"""

from seedrl.agents.r2d2 import R2D2Config
from seedrl.config import Config, EnvironmentConfig
from seedrl.networks.config import QNetworkConfig
from seedrl.replay.prioritized import ReplayConfig


def config() -> Config:
    return Config(
        environment=EnvironmentConfig(id="CartPole-v1"),
        agent=R2D2Config(
            network=QNetworkConfig(torso_sizes=(64,), core_size=64, head_sizes=(64,)),
            burn_in=4,
            unroll=20,
            stride=10,
            gamma=0.99,
            normalize_observations=True,
            normalize_rewards=True,
            learning_rate=1e-3,
            adam_epsilon=1e-8,
            # Random actions at first: rewards that are far away are found sooner.
            epsilon_decay_steps=50_000,
            target_update_interval=100,
        ),
        replay=ReplayConfig(capacity_steps=100_000, min_steps=2_560, ratio=4.0),
    )
