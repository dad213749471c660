"""IMPALA on CartPole-v1: an on-policy agent without memory, on two CPU cores.

Ends when frozen parameters score 475, the environment's own threshold, over 100 fresh episodes.
Long returns matter more than anything: with `vtrace_lambda` 0.9 or an `unroll` of 9 it does not
learn, because the value that is bootstrapped from is wrong for long. Rewards of 0.01 bring that
value to about 1; without, 475 is reached as soon, and lost sooner.

Command: `seedrl train cartpole_impala`.

Lab record
  Seeds 0 to 4 (`--seed S`), each after the same seed of `cartpole_r2d2` on the same machine, which
  was shared with other work (load average 16 to 20): 500.0, 499.2, 500.0, 500.0 and 494.2 over 100
  confirming episodes, after 189,269, 99,589, 147,371, 242,557 and 173,525 environment steps and 44,
  23, 25, 58 and 33 seconds from start to exit, together 0.67 of the 54, 68, 39, 38 and 73 seconds
  of `cartpole_r2d2`. Two cores of a CPU, no accelerator; 2026-11-22, commit d005743.
"""

from seedrl.agents.impala import ImpalaConfig
from seedrl.config import (
    Config,
    EnvironmentConfig,
    EvaluationConfig,
    LearningConfig,
    ServingConfig,
)
from seedrl.networks.config import ActorCriticConfig
from seedrl.replay.queue import QueueConfig


def config() -> Config:
    """IMPALA on CartPole-v1."""
    return Config(
        environment=EnvironmentConfig(id="CartPole-v1"),
        agent=ImpalaConfig(
            network=ActorCriticConfig(
                torso="mlp", torso_sizes=(), core="none", head_sizes=(64, 64), frame_stack=1
            ),
            unroll=19,
            gamma=0.99,
            entropy_cost=1e-3,
            reward_scale=0.01,
            learning_rate=2e-3,
            adam_b2=0.999,
            adam_epsilon=1e-5,
        ),
        serving=ServingConfig(training_slots=32, evaluation_slots=100),
        replay=QueueConfig(),
        learning=LearningConfig(batch_sequences=32, total_steps=2_000_000),
        evaluation=EvaluationConfig(
            interval_seconds=0.5, episodes=20, target_return=475.0, confirm_episodes=100
        ),
    )
