"""PPO on Breakout of MinAtar, 1 M steps, with all six actions and sticky ones, as its authors.

Another game: `--environment.id envs_server.envs.minatar:space_invaders`. The network is that of
Young and Tian 2019. Needs MinAtar, which is under the GPL: `pip install '.[minatar]'` where env
servers run.

Seed 0, mean of training episodes over the last 100,000 steps: Breakout 14.1, Space Invaders 63.7,
Freeway 56.2, Seaquest 4.5, Asterix 9.2 (docs/learning.md). Two busy cores; 2026-11-28, commit
6d034e31 with this file.
"""

from seedrl.agents.ppo import PpoConfig
from seedrl.config import Config, EnvironmentConfig, LearningConfig, ServingConfig
from seedrl.networks.config import ActorCriticConfig
from seedrl.replay.queue import QueueConfig


def config() -> Config:
    return Config(
        environment=EnvironmentConfig(id="envs_server.envs.minatar:breakout"),
        agent=PpoConfig(
            network=ActorCriticConfig(
                torso="minatar", torso_sizes=(128,), core="none", head_sizes=(), frame_stack=1
            ),
            unroll=31,
            chunk_steps=1,
            minibatches=8,
            entropy_cost=0.01,
            # Freeway hardly ever rewards at first: errors of the value must not end exploration.
            least_advantage_std=0.1,
            learning_rate=1e-3,
        ),
        serving=ServingConfig(training_slots=32, evaluation_slots=10),
        replay=QueueConfig(ahead_updates=1),
        learning=LearningConfig(batch_sequences=32, total_steps=1_000_000),
    )
