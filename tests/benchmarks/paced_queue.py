"""The run of `paced` with PPO: a queue, and updates that go through their batch eight times."""

import dataclasses

from seedrl.config import Config
from seedrl.networks.config import ActorCriticConfig
from seedrl.replay.queue import QueueConfig
from tests.benchmarks import paced


def config() -> Config:
    base = paced.config()
    return dataclasses.replace(
        base,
        agent=paced.SlowPpoConfig(
            network=ActorCriticConfig(torso_sizes=(64,), core="none", head_sizes=()),
            unroll=15,
            epochs=8,
            minibatches=1,
        ),
        replay=QueueConfig(ahead_updates=1),
        learning=dataclasses.replace(base.learning, batch_sequences=8),
    )
