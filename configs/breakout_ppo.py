"""PPO on Breakout in 44 x 44 frames, an episode for each life, on one or two CPU cores.

The paper's settings for Atari, but for 4 epochs (the paper's 3), a `clip` that does not fall, and
`value_cost` 1 (the paper's is 2). Two are added, as in the usual programs: FIRE is pressed at the
start of each further life, and values are learned in stds of returns (`normalize_rewards`), which
grow tenfold during a run.

Seed 0 with 3,748,977 as `learning.total_steps` and `agent.learning_rate_decay_steps`: games in
training return 116 at the end (Sample Factory's APPO in the same time: 62); 110 minutes on one core
of an EPYC; 2026-11-29, commit 5be66f77. With the synchronous schedule the first 300,000 steps are
the same.
"""

from seedrl.agents.ppo import PpoConfig
from seedrl.config import Config, EnvironmentConfig, EvaluationConfig, LearningConfig, ServingConfig
from seedrl.networks.config import ActorCriticConfig
from seedrl.replay.queue import QueueConfig


def config() -> Config:
    lives = "envs_server.envs.atari_lives"
    return Config(
        environment=EnvironmentConfig(
            id="ALE/Breakout-v5",
            arguments='{"img_height": 44, "img_width": 44, "life_loss_info": true}',
            wrappers=tuple(f"{lives}:{each}" for each in ("GameReturn", "FireReset", "ClipReward")),
            metrics=("game_return",),
            vectorization="atari",
            frames_per_step=4,
        ),
        agent=PpoConfig(
            network=ActorCriticConfig(torso="nature", core="none", frame_stack=4),
            unroll=128,
            epochs=4,
            chunk_steps=1,
            clip=0.1,
            normalize_images=True,
            normalize_rewards=True,
            learning_rate=2.5e-4,
            learning_rate_decay_steps=3_000_000,
        ),
        serving=ServingConfig(training_slots=16, evaluation_slots=8),
        replay=QueueConfig(ahead_updates=1),
        learning=LearningConfig(batch_sequences=8, total_steps=3_000_000, keep_freed_memory=True),
        evaluation=EvaluationConfig(interval_steps=500_000, episodes=40, actions="stochastic"),
    )
