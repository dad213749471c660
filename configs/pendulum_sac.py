"""SAC on Pendulum-v1: real actions, on two CPU cores.

Ends when frozen parameters score -200 over 100 fresh episodes. Pendulum never terminates: episodes
are cut after 200 steps, so every one of them bootstraps.

Command: `seedrl train pendulum_sac`.

Lab record
  Seeds 0 to 4 (`--seed S`, then `seedrl evaluate RUN`): -161.5, -139.1, -169.5, -158.6 and -151.5
  over 100 episodes, after 17,668, 15,824, 12,196, 13,700 and 12,832 environment steps, 2,778 to
  4,162 updates, and 26, 28, 20, 27 and 31 seconds from start to exit; a random policy has -1,210.
  InvertedPendulum-v5 (`--environment.id InvertedPendulum-v5 --agent.gamma 0.99`, extra mujoco,
  target 950, 10 evaluation slots): 1,000 over 20 episodes, after 43,727 steps and 75 seconds, seed
  0 alone. Two cores of a Xeon at 2.5 GHz, shared with other work, no accelerator; 2026-11-22,
  commit 4046c26.
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
    """SAC on Pendulum-v1."""
    return Config(
        environment=EnvironmentConfig(id="Pendulum-v1"),
        agent=SacConfig(
            network=BoxNetworkConfig(torso="mlp", actor_sizes=(64, 64), critic_sizes=(64, 64)),
            gamma=0.98,
            actor_learning_rate=1e-3,
            critic_learning_rate=2e-3,
            temperature_learning_rate=1e-3,
            tau=0.01,
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
