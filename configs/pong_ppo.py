"""PPO on Pong in 44 x 44 frames: a policy without memory, on two CPU cores.

The ball is a fraction of a pixel, which `normalize_images` brings out. The rest is as in
`breakout_ppo`, but for a lower entropy cost (docs/performance_notebook.md has the other choices).

Seeds 0 and 1: a mean training return of 0 after 350,438 and 511,379 steps (630 and 847 s), 15 after
447,871 and 818,804 (797 and 1,345 s). One core of an EPYC; 2026-11-29, commit ac3afe1a.
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
            epochs=4,
            chunk_steps=1,
            clip=0.1,
            entropy_cost=0.003,
            normalize_images=True,
            normalize_rewards=True,
            reward_clip=1.0,
            learning_rate=2.5e-4,
            learning_rate_decay_steps=8_000_000,
        ),
        serving=ServingConfig(training_slots=16, evaluation_slots=8),
        replay=QueueConfig(ahead_updates=1),
        learning=LearningConfig(batch_sequences=8, total_steps=8_000_000, keep_freed_memory=True),
        evaluation=EvaluationConfig(interval_steps=100_000, episodes=16, target_return=18.0),
    )
