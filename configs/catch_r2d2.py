"""R2D2 on Catch: a ball falls through a small grid, and a paddle has to be under it (bsuite).

The reward of 1 or -1 arrives only at the end of an episode, so a mean return of 1 is perfect play.

Not measured.
"""

from seedrl.agents.r2d2 import R2D2Config
from seedrl.config import Config, EnvironmentConfig, EvaluationConfig
from seedrl.networks.config import QNetworkConfig
from seedrl.replay.prioritized import ReplayConfig


def config() -> Config:
    return Config(
        environment=EnvironmentConfig(id="envs_server.envs.catch:make"),
        agent=R2D2Config(
            network=QNetworkConfig(torso_sizes=(64,), core_size=64, head_sizes=(64,)),
            burn_in=10,
            unroll=20,
            stride=10,
            learning_rate=1e-3,
            target_update_interval=100,
        ),
        replay=ReplayConfig(capacity_steps=100_000, min_steps=2_560, ratio=4.0),
        evaluation=EvaluationConfig(interval_steps=5_000, target_return=0.99),
    )
