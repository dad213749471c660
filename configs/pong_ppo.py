"""PPO on Pong in 44 x 44 frames: a policy without memory, on two CPU cores.

The ball is a fraction of a pixel, which `normalize_images` brings out. The rest is the paper's for
Atari, but for a learning rate twice as high. `value_cost` weighs half of a squared error, so that 2
is the paper's 1.

Seed 0: a mean training return of 0 after 475,778 steps (715 s), 15 after 602,791 (897 s), 18 after
966,424 (1,368 s); 18.4 over 16 episodes by the parameters of 401,162. One core of an EPYC;
2026-11-29, commit e52b0216.

Chosen in frames of 42 x 42, of which the network then did not see its own paddle
(docs/learning.md). There it was -13 after 4,900,000 steps without `normalize_images`; with
`value_cost` 0.5 it took 1.6 times as long, with chunk_steps 0 2.1 times.
"""

from seedrl.agents.ppo import PpoConfig
from seedrl.config import Config, EnvironmentConfig, EvaluationConfig, LearningConfig, ServingConfig
from seedrl.networks.config import ActorCriticConfig
from seedrl.replay.queue import QueueConfig


def config() -> Config:
    return Config(
        environment=EnvironmentConfig(
            id="ALE/Pong-v5",
            arguments='{"img_height": 44, "img_width": 44}',
            vectorization="atari",
            frames_per_step=4,
        ),
        agent=PpoConfig(
            network=ActorCriticConfig(torso="nature", core="none", frame_stack=4),
            unroll=128,
            epochs=3,
            chunk_steps=1,
            clip=0.1,
            value_cost=2.0,
            normalize_images=True,
            reward_clip=1.0,
            learning_rate=5e-4,
            learning_rate_decay_steps=8_000_000,
        ),
        serving=ServingConfig(training_slots=32, evaluation_slots=8),
        replay=QueueConfig(ahead_updates=1),
        learning=LearningConfig(batch_sequences=8, total_steps=8_000_000, keep_freed_memory=True),
        evaluation=EvaluationConfig(interval_steps=100_000, episodes=16, target_return=18.0),
    )
