"""R2D2 on CartPole-v1 without its two velocities: needs memory.

For long episodes whose return is far away. On immediate rewards n = 5 at gamma 0.997 is slow: 2 M
steps where `--agent.n-steps 3 --agent.gamma 0.9 --agent.unroll 20` took 0.6 M.

Seeds 0 to 4 with `--learning.total-steps 300_000`: 498.0, 493.2, 499.0, 215.2 and 497.8; without
memory (`--agent.network.core none`) 35.9 to 43.1. Seed 0 takes 146 seconds. Two busy cores of a
Xeon at 2.5 GHz; 2026-11-22, commit f99190b.
"""

from seedrl.config import Config
from seedrl.config_io import load
from seedrl.fields import with_fields


def config() -> Config:
    return with_fields(
        load("cartpole_r2d2"),
        {
            "environment.id": "envs_server.envs.masked_cartpole:make",
            "agent.burn_in": 10,
            "agent.unroll": 10,
            "agent.n_steps": 20,
            "agent.learning_rate": 1e-3,
            "serving.evaluation_slots": 50,
            "learning.batch_sequences": 64,
        },
    )
