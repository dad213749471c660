"""IMPALA on CartPole-v1: an on-policy agent without memory, on two CPU cores.

With `vtrace_lambda` 0.9 or an `unroll` of 9 it does not learn: the bootstrapped value is wrong for
long. Rewards of 0.01 bring that value to about 1.

Seeds 0 to 4: 494.2 to 500.0 over the 100 confirming episodes, after 99,589 to 242,557 steps, 23 to
58 seconds from start to exit. Two busy cores of a CPU; 2026-11-22, commit d005743.
"""

from seedrl.agents.impala import ImpalaConfig
from seedrl.config import (
    Config,
    EnvironmentConfig,
    EvaluationConfig,
    LaunchConfig,
    LearningConfig,
    ServingConfig,
)
from seedrl.networks.config import ActorCriticConfig
from seedrl.replay.queue import QueueConfig


def config() -> Config:
    return Config(
        environment=EnvironmentConfig(id="CartPole-v1"),
        agent=ImpalaConfig(
            network=ActorCriticConfig(torso_sizes=(), core="none", head_sizes=(64, 64)),
            unroll=19,
            entropy_cost=1e-3,
            reward_scale=0.01,
            learning_rate=2e-3,
            adam_b2=0.999,
            adam_epsilon=1e-5,
        ),
        serving=ServingConfig(training_slots=32, evaluation_slots=100),
        replay=QueueConfig(),
        learning=LearningConfig(batch_sequences=32, total_steps=2_000_000),
        evaluation=EvaluationConfig(interval_steps=2_000, target_return=475.0),
        # One message for all: it costs more than their step. docs/performance_notebook.md has
        # what other numbers of env servers and groups cost.
        launch=LaunchConfig(env_servers=1, groups=1),
    )
