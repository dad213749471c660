"""IMPALA on delayed recall: a symbol of four, shown once, must be named after 20 rows without it.

Perfect memory has a mean return of 1, the best policy without memory 0.25; the same settings with
`--agent.network.core none` are the memoryless control. Other delays, and other numbers of symbols:
`--environment.arguments '{"delay": 30}'`.

Command: `seedrl train recall_impala`.

Lab record
  Seeds 0 to 4: 1.00 over the 100 confirming episodes, after 329,864, 467,208, 247,096, 274,128 and
  278,432 environment steps (median 35 seconds). `--agent.network.core none`,
  600,000 steps: 0.32, 0.22, 0.21, 0.22 and 0.26. Two cores of a Xeon at 2.5 GHz, no accelerator,
  shared with much other work; 2026-11-22, commit 45a4281.
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
    """IMPALA on delayed recall."""
    return Config(
        environment=EnvironmentConfig(id="envs_server.envs.delayed_recall:make"),
        agent=ImpalaConfig(
            network=ActorCriticConfig(
                torso="mlp",
                torso_sizes=(64,),
                core="lstm",
                core_size=64,
                head_sizes=(64,),
                frame_stack=1,
            ),
            unroll=39,
            gamma=0.99,
            entropy_cost=0.01,
            learning_rate=2e-3,
            adam_b2=0.999,
            adam_epsilon=1e-5,
        ),
        serving=ServingConfig(training_slots=32, evaluation_slots=20),
        replay=QueueConfig(),
        learning=LearningConfig(batch_sequences=32, total_steps=1_000_000),
        evaluation=EvaluationConfig(
            interval_seconds=2.0, episodes=100, target_return=0.99, confirm_episodes=100
        ),
    )
