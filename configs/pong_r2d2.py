"""R2D2 on Pong in 44 x 44 frames, on two CPU cores.

Found by short runs of `seedrl experiment` (docs/performance_notebook.md has the other choices).
Pixels are normalized, as in `pong_ppo`: else the ball is hardly visible.

Seeds 0 to 2: 18.82, 19.14 and 19.95 over 100 episodes, by the parameters of 400,094, 400,106 and
500,092 environment steps; confirmed after 15, 33 and 14 minutes. Two cores of an EPYC, of which
other programs took a quarter; 2026-11-29, commit fb477994.
"""

from seedrl.agents.r2d2 import R2D2Config
from seedrl.config import Config, EnvironmentConfig, EvaluationConfig, LearningConfig, ServingConfig
from seedrl.networks.config import QNetworkConfig
from seedrl.replay.prioritized import ReplayConfig


def config() -> Config:
    return Config(
        environment=EnvironmentConfig(
            id="ALE/Pong-v5",
            arguments='{"img_height": 44, "img_width": 44}',
            vectorization="atari",
            frames_per_step=4,
        ),
        agent=R2D2Config(
            network=QNetworkConfig(
                torso="nature", torso_sizes=(256,), core_size=128, head_sizes=(128,), frame_stack=2
            ),
            normalize_images=True,
            burn_in=8,
            unroll=24,
            n_steps=5,
            stride=16,
            gamma=0.99,
            learning_rate=1e-3,
            learning_rate_decay_steps=2_000_000,
            adam_epsilon=1e-4,
            max_gradient_norm=40.0,
            target_update_interval=100,
        ),
        serving=ServingConfig(training_slots=32, evaluation_slots=16),
        replay=ReplayConfig(capacity_steps=200_000, min_steps=10_240, ratio=4.0),
        learning=LearningConfig(batch_sequences=16, total_steps=2_000_000, keep_freed_memory=True),
        evaluation=EvaluationConfig(interval_steps=100_000, episodes=16, target_return=18.0),
    )
