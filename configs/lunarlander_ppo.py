"""PPO on LunarLander-v3, 200: episodes that terminate or are cut after 1,000 steps.

Needs Box2D: `pip install '.[box2d]'` where env servers run.

Command: `seedrl train lunarlander_ppo`.

Lab record
  Seeds 1 to 4 (`--seed S`): 203.7, 223.4, 226.1 and 217.7 over the 100 confirming episodes, after
  317,221, 395,309, 429,492 and 344,717 environment steps and 67, 74, 91 and 119 seconds from start
  to exit; commit cffb47c. Seed 0: 202.7, after 409,809 steps, in two sessions of a machine that did
  much else; commit 6c5db23. Seeds 0 to 4 to the end of 409,600 steps: 265.8, 259.3, 261.7, 249.5
  and 257.4 (docs/learning.md); commit 45a4281. Two cores of a Xeon at 2.5 GHz, shared with other
  work, no accelerator; 2026-11-22.
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
    """PPO on LunarLander-v3."""
    return Config(
        environment=EnvironmentConfig(id="LunarLander-v3"),
        agent=PpoConfig(
            network=ActorCriticConfig(
                torso="mlp", torso_sizes=(), core="none", head_sizes=(64, 64), frame_stack=1
            ),
            unroll=63,
            epochs=6,
            minibatches=8,
            gamma=0.999,
            gae_lambda=0.98,
            entropy_cost=0.01,
            reward_scale=0.01,
            learning_rate=6e-4,
        ),
        serving=ServingConfig(training_slots=32, evaluation_slots=20),
        replay=QueueConfig(ahead_updates=1),
        learning=LearningConfig(batch_sequences=32, total_steps=2_000_000),
        evaluation=EvaluationConfig(
            interval_seconds=5.0, episodes=20, target_return=200.0, confirm_episodes=100
        ),
    )
