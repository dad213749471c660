"""PPO on LunarLander-v3, 200: episodes that terminate or are cut after 1,000 steps.

Needs Box2D: `pip install '.[box2d]'` where env servers run.

Seeds 1 to 4: 203.7 to 226.1 over the 100 confirming episodes, after 317,221 to 429,492 steps, 67 to
119 seconds; seeds 0 to 4 to the end of 409,600 steps: 249.5 to 265.8. Two cores of a Xeon at 2.5
GHz; 2026-11-22, commits cffb47c and 45a4281.
"""

from seedrl.agents.ppo import PpoConfig
from seedrl.config import Config, EnvironmentConfig, EvaluationConfig, LearningConfig
from seedrl.networks.config import ActorCriticConfig
from seedrl.replay.queue import QueueConfig


def config() -> Config:
    return Config(
        environment=EnvironmentConfig(id="LunarLander-v3"),
        agent=PpoConfig(
            network=ActorCriticConfig(torso_sizes=(), core="none", head_sizes=(64, 64)),
            unroll=63,
            epochs=6,
            minibatches=8,
            gamma=0.999,
            gae_lambda=0.98,
            reward_scale=0.01,
            learning_rate=6e-4,
        ),
        replay=QueueConfig(ahead_updates=1),
        learning=LearningConfig(batch_sequences=32, total_steps=2_000_000),
        evaluation=EvaluationConfig(interval_steps=10_000, target_return=200.0),
    )
