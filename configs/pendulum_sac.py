"""SAC on Pendulum-v1: real actions, on two CPU cores.

Ends when frozen parameters score -200 over 100 fresh episodes. Pendulum never terminates: episodes
are cut after 200 steps, so every one of them bootstraps.

Command: `seedrl train pendulum_sac`.

Lab record
  Seeds 0 to 4 (`--seed S`, then `seedrl evaluate RUN`): -171.6, -150.7, -165.8, -156.8 and -149.5
  over 100 episodes, after 11,360, 12,032, 17,580, 17,668 and 13,392 environment steps, 2,570 to
  4,149 updates, and 64, 55, 58, 53 and 55 seconds from start to exit, of which up to 25 compiling.
  A random policy has -1,210. Two cores of a Xeon at 2.5 GHz under ten times their load, no
  accelerator; 2026-11-22, commit 1ca27fc.
"""

from seedrl.agents.sac.config import SacConfig
from seedrl.config import (
    Config,
    EnvironmentConfig,
    EvaluationConfig,
    LearningConfig,
    ReplayConfig,
    ServingConfig,
)
from seedrl.networks.box_network import BoxNetworkConfig


def config() -> Config:
    """SAC on Pendulum-v1."""
    return Config(
        environment=EnvironmentConfig(id="Pendulum-v1"),
        agent=SacConfig(
            network=BoxNetworkConfig(torso="mlp", actor_sizes=(64, 64), critic_sizes=(64, 64)),
            gamma=0.98,
            actor_learning_rate=1e-3,
            critic_learning_rate=2e-3,
            temperature_learning_rate=1e-3,
            target_rate=0.01,
        ),
        serving=ServingConfig(training_slots=16, evaluation_slots=100),
        replay=ReplayConfig(
            capacity_steps=100_000,
            min_steps=1_000,
            priority_exponent=0.0,
            importance_exponent=0.0,
            ratio=64.0,
        ),
        learning=LearningConfig(batch_sequences=256, total_steps=200_000),
        evaluation=EvaluationConfig(
            interval_seconds=2.0, episodes=20, target_return=-200.0, confirm_episodes=100
        ),
    )
