"""PPO on HalfCheetah-v5, which needs running mean/std normalization, on two CPU cores.

Needs MuJoCo: `pip install '.[mujoco]'` where env servers run.

Seeds 0 and 1: 3,825 and 3,819 over 20 episodes after 200,000 steps, 129 seconds; seed 0 without
normalization: 553. Two busy cores of a CPU; 2026-11-22, commit a69d11e.
"""

from seedrl.agents.ppo import PpoConfig
from seedrl.config import Config, EnvironmentConfig, EvaluationConfig, LearningConfig, ServingConfig
from seedrl.networks.config import ActorCriticConfig
from seedrl.replay.queue import QueueConfig


def config() -> Config:
    return Config(
        environment=EnvironmentConfig(id="HalfCheetah-v5"),
        agent=PpoConfig(
            network=ActorCriticConfig(torso_sizes=(), core="none", head_sizes=(64, 64)),
            epochs=10,
            minibatches=16,
            entropy_cost=0.0,
            normalize_observations=True,
            normalize_rewards=True,
            learning_rate=6e-4,
        ),
        serving=ServingConfig(training_slots=16, evaluation_slots=10),
        replay=QueueConfig(ahead_updates=1),
        learning=LearningConfig(batch_sequences=16, total_steps=200_000, schedule="synchronous"),
        evaluation=EvaluationConfig(episodes=10),
    )
