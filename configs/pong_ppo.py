"""PPO on Pong in 44 x 44 frames: a policy without memory, on two CPU cores.

The ball is a fraction of a pixel, which `normalize_images` brings out. The rest is the paper's for
Atari, but for a learning rate twice as high. `value_cost` weighs half of a squared error, so that 2
is the paper's 1.

Seed 0: a mean training return of 0 after 471,728 steps (388 s), 15 after 582,346 (490 s); stopped
after 632,856 at 17.7. Two slow cores of an EPYC; 2026-11-29, commit 38f942cd.

In 42 x 42, of which the network then did not see its own paddle (docs/learning.md), seed 0 had a
mean training return of 0 after 581,000 steps (241 s), 18 after 759,000 (311 s), 20.00 over 100
fresh episodes after 54 minutes. Two cores of an EPYC; 2026-11-24, commit 4e99177. Without
`normalize_images` it was -13 after 4,900,000 steps; with `value_cost` 0.5 it took 1.6 times as
long, with chunk_steps 0 2.1 times.
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
