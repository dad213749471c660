"""PPO on CartPole-v1: an on-policy agent without memory, on two CPU cores.

Seeds 0 to 4: 500.0 each over the 100 confirming episodes, after 100,447 to 117,271 steps, 25 to 47
seconds from start to exit. Two busy cores of a CPU; 2026-11-22, commit da25ca5.
"""

from seedrl.agents.ppo import PpoConfig
from seedrl.config import (
    Config,
    EnvironmentConfig,
    EvaluationConfig,
    LaunchConfig,
    LearningConfig,
    ServingConfig,
)
from seedrl.networks.config import ActorCriticConfig
from seedrl.replay.queue import QueueConfig


def config() -> Config:
    return Config(
        environment=EnvironmentConfig(id="CartPole-v1"),
        agent=PpoConfig(
            network=ActorCriticConfig(torso_sizes=(), core="none", head_sizes=(64, 64)),
            unroll=31,
            epochs=8,
            entropy_cost=0.0,
            reward_scale=0.01,
            learning_rate=2e-3,
        ),
        serving=ServingConfig(training_slots=32, evaluation_slots=100),
        replay=QueueConfig(ahead_updates=1),
        learning=LearningConfig(batch_sequences=32, total_steps=2_000_000),
        evaluation=EvaluationConfig(interval_steps=2_000, target_return=475.0),
        # One message for all: it costs more than their step. docs/performance_notebook.md has
        # what other numbers of env servers and groups cost.
        launch=LaunchConfig(env_servers=1, groups=1),
    )
