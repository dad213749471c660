"""R2D2 on delayed recall: a symbol of four, shown once, must be named 20 time steps later.

Perfect memory has a mean return of 1, the best policy without memory 0.25. Other delays and numbers
of symbols: `--environment.arguments '{"delay": 30}'`.

Seeds 0 to 4: 1.00 over the 100 confirming episodes, after 82,064 to 133,320 steps (median 18
seconds); without memory (`--agent.network.core none`) 0.21 to 0.29. Two busy cores of a Xeon at 2.5
GHz; 2026-11-22, commit 45a4281.

RepeatPreviousEasy of POPGym is learned with three options more: docs/agents/r2d2.md.
"""

from seedrl.agents.r2d2 import R2D2Config
from seedrl.config import Config, EnvironmentConfig, EvaluationConfig, LearningConfig
from seedrl.networks.config import QNetworkConfig
from seedrl.replay.prioritized import ReplayConfig


def config() -> Config:
    return Config(
        environment=EnvironmentConfig(id="envs_server.envs.delayed_recall:make"),
        agent=R2D2Config(
            network=QNetworkConfig(torso_sizes=(64,), core_size=64, head_sizes=(64,)),
            burn_in=0,
            unroll=40,
            n_steps=1,
            stride=20,
            gamma=0.9,
            learning_rate=1e-3,
            adam_epsilon=1e-5,
            target_update_interval=100,
        ),
        replay=ReplayConfig(capacity_steps=100_000, min_steps=2_560, ratio=4.0),
        learning=LearningConfig(batch_sequences=32, total_steps=500_000),
        evaluation=EvaluationConfig(interval_steps=5_000, episodes=100, target_return=0.99),
    )
