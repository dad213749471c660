"""PPO on CartPole-v1: an on-policy agent without memory, on two CPU cores.

Command: `seedrl train cartpole_ppo`.

Lab record
  Seeds 0 to 4 (`--seed S`), each before the same seed of `cartpole_r2d2` on the same machine, which
  was shared with other work (load average 10 to 25): 500.0 each over 100 confirming episodes, after
  117,271, 102,492, 108,506, 100,447 and 110,618 environment steps and 47, 39, 34, 29 and 25
  seconds from start to exit; seeds 0 to 3 together 0.64 of the 78, 54, 61 and 42 seconds of
  `cartpole_r2d2` (its seed 4 took 100 while the load rose), all five half of its CPU time. Two
  cores of a CPU, no accelerator; 2026-11-22, commit da25ca5. With `--learning.schedule synchronous`
  seed 0 confirmed 500.0 after 100,675 steps.
"""

from seedrl.agents.ppo import PpoConfig
from seedrl.config import (
    Config,
    EnvironmentConfig,
    EvaluationConfig,
    LearningConfig,
    ServingConfig,
)
from seedrl.networks.config import ActorCriticConfig
from seedrl.replay.queue import QueueConfig


def config() -> Config:
    """PPO on CartPole-v1."""
    return Config(
        environment=EnvironmentConfig(id="CartPole-v1"),
        agent=PpoConfig(
            network=ActorCriticConfig(
                torso="mlp", torso_sizes=(), core="none", head_sizes=(64, 64), frame_stack=1
            ),
            unroll=31,
            epochs=8,
            minibatches=4,
            gamma=0.99,
            gae_lambda=0.95,
            entropy_cost=0.0,
            reward_scale=0.01,
            learning_rate=2e-3,
        ),
        serving=ServingConfig(training_slots=32, evaluation_slots=100),
        replay=QueueConfig(ahead_updates=1),
        learning=LearningConfig(batch_sequences=32, total_steps=2_000_000),
        evaluation=EvaluationConfig(
            interval_seconds=0.5, episodes=20, target_return=475.0, confirm_episodes=100
        ),
    )
