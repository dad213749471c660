"""IMPALA on CartPole-v1: an on-policy agent without memory, on two CPU cores.

Command: `seedrl train cartpole_impala`.

Lab record
  None yet.
"""

from seedrl.agents.impala import ImpalaConfig
from seedrl.config import (
    Config,
    EnvironmentConfig,
    EvaluationConfig,
    LearningConfig,
    ServingConfig,
)
from seedrl.networks.actor_critic import ActorCriticConfig
from seedrl.replay.queue import QueueConfig


def config() -> Config:
    """IMPALA on CartPole-v1."""
    return Config(
        environment=EnvironmentConfig(id="CartPole-v1"),
        agent=ImpalaConfig(
            network=ActorCriticConfig(
                torso="mlp", torso_sizes=(), core="none", head_sizes=(64, 64), frame_stack=1
            ),
            unroll=19,
            gamma=0.99,
            entropy_cost=1e-3,
            reward_scale=0.01,
            learning_rate=2e-3,
            adam_b2=0.999,
            adam_epsilon=1e-5,
        ),
        serving=ServingConfig(training_slots=32, evaluation_slots=100),
        replay=QueueConfig(),
        learning=LearningConfig(batch_sequences=32, total_steps=2_000_000),
        evaluation=EvaluationConfig(
            interval_seconds=0.5, episodes=20, target_return=475.0, confirm_episodes=100
        ),
    )
