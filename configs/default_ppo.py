"""PPO for an environment of your own, with any actions, without memory.

    seedrl train default_ppo --environment.id YOUR_ID --learning.total-steps 1000000

Observations and rewards are normalized: neither their scale nor that of returns matters. For what
one observation does not show: --agent.network.core lstm --agent.chunk-steps 0.
"""

from seedrl.agents.ppo import PpoConfig
from seedrl.config import Config, EnvironmentConfig, LearningConfig
from seedrl.networks.config import ActorCriticConfig
from seedrl.replay.queue import QueueConfig


def config() -> Config:
    return Config(
        environment=EnvironmentConfig(id="CartPole-v1"),
        agent=PpoConfig(
            network=ActorCriticConfig(torso_sizes=(), core="none", head_sizes=(64, 64)),
            unroll=63,
            epochs=6,
            minibatches=8,
            chunk_steps=1,
            normalize_observations=True,
            normalize_rewards=True,
            least_advantage_std=0.1,
            learning_rate=1e-3,
        ),
        replay=QueueConfig(ahead_updates=1),
        learning=LearningConfig(batch_sequences=32, schedule="synchronous"),
    )
