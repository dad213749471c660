"""R2D2 without a core on Breakout of MinAtar, 1 M steps: double, dueling, n-step Q-learning.

All six actions and sticky ones, as its authors; the network is that of Young and Tian 2019. Another
game: `--environment.id envs_server.envs.minatar:space_invaders`. Needs MinAtar, which is under the
GPL: `pip install '.[minatar]'` where env servers run.

Seeds 0 to 2 over 100 greedy episodes: Breakout 16.6, 17.4 and 17.6, Space Invaders 91.9, 64.1 and
80.4. Two busy cores of a Xeon at 2.5 GHz; 2026-11-23, commit 132d362.
"""

from seedrl.agents.r2d2 import R2D2Config
from seedrl.config import Config, EnvironmentConfig, ServingConfig
from seedrl.networks.config import QNetworkConfig
from seedrl.replay.prioritized import ReplayConfig


def config() -> Config:
    return Config(
        environment=EnvironmentConfig(id="envs_server.envs.minatar:breakout"),
        agent=R2D2Config(
            network=QNetworkConfig(
                torso="minatar", torso_sizes=(128,), core="none", head_sizes=(), frame_stack=1
            ),
            burn_in=0,
            unroll=5,
            n_steps=3,
            stride=5,
            gamma=0.99,
            learning_rate=5e-4,
            adam_epsilon=1e-4,
            target_update_interval=500,
        ),
        serving=ServingConfig(training_slots=32, evaluation_slots=10),
        replay=ReplayConfig(capacity_steps=100_000, min_steps=5_000, ratio=4.0),
    )
