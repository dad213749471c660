"""IMPALA on Breakout of MinAtar, 1 M steps, with all six actions and sticky ones, as its authors.

Another game: `--environment.id envs_server.envs.minatar:space_invaders --agent.learning-rate 2e-3
--agent.entropy-cost 0.01`: it wants smaller steps. The network is that of Young and Tian 2019.
Needs MinAtar, which is under the GPL: `pip install '.[minatar]'` where env servers run.

Seeds 0 to 2 over 100 greedy episodes: Breakout 11.1, 6.1 and 14.6, Space Invaders 119.5, 54.5 and
102.3. Two busy cores of a Xeon at 2.5 GHz; 2026-11-23, commit 132d362.
"""

from seedrl.agents.impala import ImpalaConfig
from seedrl.config import Config, EnvironmentConfig, LearningConfig, ServingConfig
from seedrl.networks.config import ActorCriticConfig
from seedrl.replay.queue import QueueConfig


def config() -> Config:
    return Config(
        environment=EnvironmentConfig(id="envs_server.envs.minatar:breakout"),
        agent=ImpalaConfig(
            network=ActorCriticConfig(
                torso="minatar", torso_sizes=(128,), core="none", head_sizes=(), frame_stack=1
            ),
            unroll=9,
            entropy_cost=0.005,
            learning_rate=4e-3,
            learning_rate_decay_steps=1_000_000,
            adam_b2=0.999,
            adam_epsilon=1e-4,
            max_gradient_norm=0.5,
        ),
        serving=ServingConfig(training_slots=32, evaluation_slots=10),
        replay=QueueConfig(),
        learning=LearningConfig(batch_sequences=8, total_steps=1_000_000),
    )
