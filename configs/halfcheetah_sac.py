"""SAC on HalfCheetah-v5, with the settings of Stable-Baselines3 and its zoo, on two CPU cores.

One update of 256 transitions for every environment step, after 10,000 steps without any. Episodes
are cut after 1,000 steps, none terminates: every one of them bootstraps. Replay holds all of them.
Needs MuJoCo: `pip install '.[mujoco]'` where env servers run.

Command: `seedrl train halfcheetah_sac`.

Lab record
  With kernels that begin with all of the variance that flax gives them (ba09f11), seeds 0 and 1,
  2026-11-24 on two cores of an EPYC, beside other work: 5,623 and 5,507 over 100 fresh episodes
  after 200,000 steps; 2,195 after 59,000 and 2,618 after 58,000, in evaluations. With a third of
  it (cef35c3), seed 0: 6,566; 3,487 after 58,000. As in PyTorch, biases too (a180f75), seed 0:
  6,732; 3,132 after 62,000; seeds 1 to 4 (1187edb): 6,410, 6,682, 7,547 and 6,930.
  Stable-Baselines3, seeds 0 to 4: 7,179, 7,260, 6,679, 6,687, 7,239 (docs/learning.md).
"""

from seedrl.agents.sac import SacConfig
from seedrl.config import (
    Config,
    EnvironmentConfig,
    EvaluationConfig,
    LearningConfig,
    ReplayConfig,
    ServingConfig,
)
from seedrl.networks.config import BoxNetworkConfig


def config() -> Config:
    """SAC on HalfCheetah-v5."""
    return Config(
        environment=EnvironmentConfig(id="HalfCheetah-v5"),
        agent=SacConfig(
            network=BoxNetworkConfig(torso="mlp", actor_sizes=(256, 256), critic_sizes=(256, 256)),
            gamma=0.99,
            actor_learning_rate=3e-4,
            critic_learning_rate=3e-4,
            temperature_learning_rate=3e-4,
            tau=0.005,
        ),
        serving=ServingConfig(training_slots=8, evaluation_slots=10),
        replay=ReplayConfig(
            capacity_steps=200_000,
            min_steps=10_000,
            priority_exponent=0.0,
            importance_exponent=0.0,
            ratio=256.0,
        ),
        learning=LearningConfig(batch_sequences=256, total_steps=200_000),
        evaluation=EvaluationConfig(interval_seconds=60.0, episodes=10),
    )
