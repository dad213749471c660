"""IMPALA on CartPole-v1 without its two velocities: needs memory.

Seed 0: 500.0 over the 100 confirming episodes, after 169,931 steps, 30 seconds after the first
update; without memory (`--agent.network.core none`) 41.0 after as many steps. Two busy cores of a
CPU; 2026-11-22, commit eaead1a.
"""

from seedrl.config import Config
from seedrl.config_io import load
from seedrl.fields import with_fields


def config() -> Config:
    return with_fields(
        load("cartpole_impala"),
        {
            "environment.id": "envs_server.envs.masked_cartpole:make",
            "agent.network.torso_sizes": (64,),
            "agent.network.core": "lstm",
            "agent.network.core_size": 64,
            "agent.network.head_sizes": (64,),
        },
    )
