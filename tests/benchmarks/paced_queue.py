"""The run of `paced` with PPO: a queue, and an update that goes through its batch eight times."""

import dataclasses

from seedrl.agents.ppo import PpoConfig
from seedrl.config import Config
from seedrl.networks.config import ActorCriticConfig
from seedrl.replay.queue import QueueConfig
from tests.benchmarks import paced


def config() -> Config:
    base = paced.config()
    return dataclasses.replace(
        base,
        agent=PpoConfig(
            network=ActorCriticConfig(torso_sizes=(1024, 1024), core="none", head_sizes=()),
            unroll=15,
            epochs=8,
        ),
        replay=QueueConfig(ahead_updates=1),
        learning=dataclasses.replace(base.learning, batch_sequences=16),
    )
