"""IMPALA on RepeatPreviousEasy of POPGym: the suit of the card three cards ago is to be named.

A deck of 52 cards is dealt in 51 steps; returns are in [-1, 1]. Perfect memory has 1, guessing
-0.5, the best policy without memory -0.49; the same settings with `--agent.network.core none` are
the memoryless control. Actions decide about no card, so a low discount loses nothing.

Needs POPGym: `pip install '.[popgym]'` where env servers run.

Command: `seedrl train repeat_previous_impala`.

Lab record
  Seeds 0 to 4: 0.91, 0.99, 0.95, 0.94 and 0.99 over the 100 confirming episodes, after 576,376,
  478,696, 470,064, 659,096 and 733,544 environment steps (median 67 seconds; seed 0 took 1,658, why
  is not known). `--agent.network.core none`, 800,000 steps: -0.49, -0.50, -0.49, -0.48 and -0.50.
  Two cores of a Xeon at 2.5 GHz, no accelerator, shared with much other work; 2026-11-22, commit
  45a4281.
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
    """IMPALA on RepeatPreviousEasy."""
    return Config(
        environment=EnvironmentConfig(id="envs_server.envs.popgym:make"),
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
            gamma=0.9,
            reward_scale=48.0,
            entropy_cost=0.01,
            learning_rate=2e-3,
            adam_b2=0.999,
            adam_epsilon=1e-5,
        ),
        serving=ServingConfig(training_slots=32, evaluation_slots=20),
        replay=QueueConfig(),
        learning=LearningConfig(batch_sequences=32, total_steps=1_000_000),
        evaluation=EvaluationConfig(
            interval_seconds=2.0, episodes=100, target_return=0.9, confirm_episodes=100
        ),
    )
