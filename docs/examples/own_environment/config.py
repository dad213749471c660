"""R2D2 on an environment of your own: `seedrl train docs/examples/own_environment/config.py`.

The environment is a factory, `module:function`. The directory of this file is on the path of the
learner and of the env servers that `seedrl train` starts, so they find `recall.py` next to it.
"""

from seedrl.agents.r2d2 import R2D2Config
from seedrl.config import Config, EnvironmentConfig, EvaluationConfig, LearningConfig, ReplayConfig
from seedrl.networks.config import QNetworkConfig


def config():
    network = QNetworkConfig(
        torso="mlp", torso_sizes=(32,), core="lstm", core_size=32, head_sizes=(32,), frame_stack=1
    )
    return Config(
        environment=EnvironmentConfig(id="recall:make", arguments='{"delay": 4}'),
        agent=R2D2Config(
            network=network,
            burn_in=0,
            unroll=12,
            n_steps=3,
            stride=6,
            gamma=0.97,
            learning_rate=3e-3,
            target_update_interval=50,
        ),
        replay=ReplayConfig(capacity_steps=20_000, min_steps=1_000, ratio=4.0),
        learning=LearningConfig(batch_sequences=32, total_steps=200_000),
        evaluation=EvaluationConfig(interval_steps=2_000, episodes=20, target_return=1.0),
    )
