"""IMPALA on delayed recall: a symbol of four, shown once, must be named 20 time steps later.

Perfect memory has a mean return of 1, the best policy without memory 0.25. Other delays and numbers
of symbols: `--environment.arguments '{"delay": 30}'`.

Seeds 0 to 4: 1.00 over the 100 confirming episodes, after 247,096 to 467,208 steps (median 35
seconds); without memory (`--agent.network.core none`) 0.21 to 0.32. Two busy cores of a Xeon at 2.5
GHz; 2026-11-22, commit 45a4281.

RepeatPreviousEasy of POPGym is learned with three options more: docs/agents/impala.md.
"""

from seedrl.agents.impala import ImpalaConfig
from seedrl.config import Config, EnvironmentConfig, EvaluationConfig
from seedrl.networks.config import ActorCriticConfig
from seedrl.replay.queue import QueueConfig


def config() -> Config:
    return Config(
        environment=EnvironmentConfig(id="envs_server.envs.delayed_recall:make"),
        agent=ImpalaConfig(
            network=ActorCriticConfig(torso_sizes=(64,), core_size=64, head_sizes=(64,)),
            unroll=39,
            learning_rate=2e-3,
            adam_b2=0.999,
            adam_epsilon=1e-5,
        ),
        replay=QueueConfig(),
        evaluation=EvaluationConfig(interval_steps=5_000, episodes=100, target_return=0.99),
    )
