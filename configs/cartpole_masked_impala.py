"""IMPALA on CartPole-v1 without its two velocities: needs memory.

Seed 0: 500.0 over the 100 confirming episodes, after 169,931 steps, 30 seconds after the first
update; without memory (`--agent.network.core none`) 41.0 after as many steps. Two busy cores of a
CPU; 2026-11-22, commit eaead1a.

Command: `seedrl train cartpole_masked_impala`.
"""

from seedrl.agents.impala import ImpalaConfig
from seedrl.config import Config, EnvironmentConfig, EvaluationConfig, LearningConfig, ServingConfig
from seedrl.networks.config import ActorCriticConfig
from seedrl.replay.queue import QueueConfig


def config() -> Config:
    return Config(
        environment=EnvironmentConfig(id="envs_server.envs.masked_cartpole:make"),
        agent=ImpalaConfig(
            network=ActorCriticConfig(
                torso="mlp",
                torso_sizes=(64,),
                core="lstm",
                core_size=64,
                head_sizes=(64,),
                frame_stack=1,
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
        evaluation=EvaluationConfig(interval_seconds=0.5, target_return=475.0),
    )
