"""SAC on HalfCheetah-v5, with the settings of Stable-Baselines3 and its zoo, on two CPU cores.

One update of 256 transitions for every environment step, after 10,000 steps without any. Needs
MuJoCo: `pip install '.[mujoco]'` where env servers run.

Seeds 0 to 4: 6,732, 6,410, 6,682, 7,547 and 6,930 over 100 episodes after 200,000 steps. Two busy
cores of an EPYC; 2026-11-24, commit 1187edb. Stable-Baselines3 (docs/learning.md): 6,679 to 7,260.
"""

from seedrl.agents.sac import SacConfig
from seedrl.config import Config, EnvironmentConfig, EvaluationConfig, LearningConfig, ServingConfig
from seedrl.replay.prioritized import ReplayConfig


def config() -> Config:
    return Config(
        environment=EnvironmentConfig(id="HalfCheetah-v5"),
        # All fields of agent and network are those of Stable-Baselines3 by default.
        agent=SacConfig(),
        serving=ServingConfig(training_slots=8, evaluation_slots=10),
        replay=ReplayConfig(capacity_steps=200_000, priority_exponent=0.0, ratio=256.0),
        learning=LearningConfig(batch_sequences=256, total_steps=200_000),
        evaluation=EvaluationConfig(episodes=10),
    )
