"""R2D2 on CartPole-v1 without its two velocities: needs memory.

A policy sees position and angle only, so it has to estimate how they change; the same settings with
`--agent.network.core none` are the memoryless control.

For tasks of this kind: long episodes whose return is far away. On immediate rewards n = 5 at gamma
0.997 is slow: 2 M steps where `--agent.n-steps 3 --agent.gamma 0.9 --agent.unroll 20` took 0.6 M.

Command: `seedrl train cartpole_masked_r2d2`.

Lab record
  Seed 0: 496.2 over 100 confirming episodes, 494.4 +- 1.4 by `seedrl evaluate`, after 270,284
  environment steps and 146 seconds. `--agent.network.core none`: 37.5 after as many steps. Two
  cores of a Xeon at 2.5 GHz, no accelerator, shared with other work; 2026-11-20, commit e956753.
  Seeds 0 to 4 with `--learning.total-steps 300_000`: 498.0, 493.2, 499.0, 215.2 and 497.8, seed 3
  without having reached 475; without a core 36.1, 35.9, 40.1, 43.1 and 39.3. The same machine;
  2026-11-22, commit f99190b.
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
    """R2D2 on CartPole-v1 with the velocities hidden."""
    return Config(
        environment=EnvironmentConfig(id="envs_server.envs.masked_cartpole:make"),
        agent=R2D2Config(
            network=QNetworkConfig(
                torso="mlp",
                torso_sizes=(64,),
                core="lstm",
                core_size=64,
                head_sizes=(64,),
                frame_stack=1,
            ),
            burn_in=10,
            unroll=10,
            n_steps=20,
            stride=10,
            gamma=0.99,
            learning_rate=1e-3,
            adam_epsilon=1e-5,
            target_update_interval=50,
        ),
        serving=ServingConfig(training_slots=32, evaluation_slots=50),
        replay=ReplayConfig(capacity_steps=100_000, min_steps=2_560, ratio=4.0),
        learning=LearningConfig(batch_sequences=64, total_steps=1_000_000),
        evaluation=EvaluationConfig(
            interval_seconds=2.0, episodes=20, target_return=475.0, confirm_episodes=100
        ),
    )
