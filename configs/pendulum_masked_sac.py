"""Recurrent SAC on Pendulum-v1 without its angular velocity, on two CPU cores.

The memoryless control: `--agent.network.core none`.

Seed 3: -171.4 over 100 episodes, after 28,576 steps, 61 seconds from start to exit. Two busy cores
of a CPU; 2026-11-22, commit d402e05.
"""

from seedrl.config import Config
from seedrl.config_io import load
from seedrl.fields import with_fields


def config() -> Config:
    return with_fields(
        load("pendulum_sac"),
        {
            "environment.id": "envs_server.envs.masked_pendulum:make",
            "agent.network.core": "lstm",
            "agent.network.core_size": 64,
            "agent.burn_in": 4,
            "agent.unroll": 16,
            "replay.min_steps": 2_000,
            "learning.batch_sequences": 32,
        },
    )
