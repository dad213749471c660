"""R2D2 on delayed recall: a symbol of four, shown once, must be named after 20 rows without it.

Perfect memory has a mean return of 1, the best policy without memory 0.25; the same settings with
`--agent.network.core none` are the memoryless control. Other delays, and other numbers of symbols:
`--environment.arguments '{"delay": 30}'`.

Command: `seedrl train recall_r2d2`.

Lab record
  Seeds 0 to 4: 1.00 over the 100 confirming episodes, after 125,096, 82,064, 96,584, 133,320 and
  92,792 environment steps (median 18 seconds). `--agent.network.core none`,
  600,000 steps: 0.24, 0.23, 0.21, 0.21 and 0.29. Two cores of a Xeon at 2.5 GHz, no accelerator,
  shared with much other work; 2026-11-22, commit 45a4281.
"""

from seedrl.agents.r2d2 import R2D2Config
from seedrl.config import (
    Config,
    EnvironmentConfig,
    EvaluationConfig,
    LearningConfig,
    ReplayConfig,
    ServingConfig,
)
from seedrl.networks.config import QNetworkConfig


def config() -> Config:
    """R2D2 on delayed recall."""
    return Config(
        environment=EnvironmentConfig(id="envs_server.envs.delayed_recall:make"),
        agent=R2D2Config(
            network=QNetworkConfig(
                torso="mlp",
                torso_sizes=(64,),
                core="lstm",
                core_size=64,
                head_sizes=(64,),
                frame_stack=1,
            ),
            burn_in=0,
            unroll=40,
            n_steps=1,
            stride=20,
            gamma=0.9,
            learning_rate=1e-3,
            adam_epsilon=1e-5,
            target_update_interval=100,
        ),
        serving=ServingConfig(training_slots=32, evaluation_slots=20),
        replay=ReplayConfig(capacity_steps=100_000, min_steps=2_560, ratio=4.0),
        learning=LearningConfig(batch_sequences=32, total_steps=500_000),
        evaluation=EvaluationConfig(
            interval_seconds=2.0, episodes=100, target_return=0.99, confirm_episodes=100
        ),
    )
