"""IMPALA for an environment of your own, with any actions, without memory.

    seedrl train default_impala --environment.id YOUR_ID --learning.total-steps 1000000

Observations and rewards are normalized: neither their scale nor that of returns matters. For what
one observation does not show: --agent.network.core lstm.
"""

from seedrl.agents.impala import ImpalaConfig
from seedrl.config import Config, EnvironmentConfig, LearningConfig
from seedrl.networks.config import ActorCriticConfig
from seedrl.replay.queue import QueueConfig


def config() -> Config:
    return Config(
        environment=EnvironmentConfig(id="CartPole-v1"),
        agent=ImpalaConfig(
            network=ActorCriticConfig(torso_sizes=(), core="none", head_sizes=(64, 64)),
            unroll=19,
            normalize_observations=True,
            normalize_rewards=True,
            learning_rate=1e-3,
            adam_b2=0.999,
            adam_epsilon=1e-5,
        ),
        replay=QueueConfig(),
        learning=LearningConfig(batch_sequences=16),
    )
