"""SAC for an environment of your own with continuous actions, without memory.

    seedrl train default_sac --environment.id YOUR_ID --learning.total-steps 100000

Observations and rewards are normalized: neither their scale nor that of returns matters. For what
one observation does not show: --agent.network.core lstm --agent.burn-in 4 --agent.unroll 10.
"""

from seedrl.agents.sac import SacConfig
from seedrl.config import Config, EnvironmentConfig, LearningConfig, ServingConfig
from seedrl.networks.config import BoxNetworkConfig
from seedrl.replay.prioritized import ReplayConfig


def config() -> Config:
    return Config(
        environment=EnvironmentConfig(id="Pendulum-v1"),
        agent=SacConfig(
            network=BoxNetworkConfig(actor_sizes=(64, 64), critic_sizes=(64, 64)),
            normalize_observations=True,
            normalize_rewards=True,
            actor_learning_rate=1e-3,
            critic_learning_rate=1e-3,
            temperature_learning_rate=1e-3,
            tau=0.01,
        ),
        serving=ServingConfig(training_slots=16, evaluation_slots=20),
        replay=ReplayConfig(min_steps=1_000, priority_exponent=0.0, ratio=64.0),
        learning=LearningConfig(batch_sequences=256),
    )
