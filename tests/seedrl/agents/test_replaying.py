"""Acting equals replaying: with unchanged parameters the loss sees the Q-values of acting."""

from typing import Any

import jax
import numpy as np
import pytest

from seedrl.agents.apex import ApexConfig
from seedrl.agents.r2d2 import R2D2Config
from seedrl.networks.config import QNetworkConfig
from tests.seedrl.agents.actor_critics import ROWS, SPEC, B, acted, window_of
from tests.seedrl.random_parameters import random_parameters

_SIZES: dict[str, Any] = {"torso": "mlp", "torso_sizes": (), "head_sizes": (), "frame_stack": 3}
CONFIGS: dict[str, Any] = {
    "R2D2": R2D2Config(
        network=QNetworkConfig(**_SIZES, core_size=5),
        burn_in=3,
        unroll=4,
        n_steps=2,
        stride=2,
        gamma=0.9,
        reward_scale=0.5,
    ),
    "Ape-X": ApexConfig(
        network=QNetworkConfig(**_SIZES, core="none"), earlier_steps=2, n_steps=2, gamma=0.9
    ),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_the_stored_carry_or_the_frames_before_give_the_acting_q_values(name: str) -> None:
    """At every start, at every row and across resets.

    With both networks equal and all rows alike, initial priorities (from the stored Q-values) and
    priorities of the loss (from the replayed ones) are the same function of the same numbers.
    """
    agent = CONFIGS[name].build(SPEC)
    loss, initial_priorities = jax.jit(agent.update.loss), jax.jit(agent.initial_priorities)
    initial_carry = jax.jit(agent.initial_carry, static_argnums=0)
    params = random_parameters(agent.init)
    stream = acted(agent._replace(act=jax.jit(agent.act), initial_carry=initial_carry), params)
    found, weights = [], np.ones(B, np.float32)
    for start in range(ROWS - agent.window.length + 1):
        sequence = window_of(stream, start, agent.window.length)
        sequence = sequence._replace(carry=agent.stored_carry(sequence.carry))
        _, output = loss(params, params, sequence, weights, jax.random.key(9))
        steps = sequence.steps
        steps = steps._replace(timestep=steps.timestep._replace(observation=()))
        np.testing.assert_allclose(output.priorities, initial_priorities(steps), atol=1e-5)
        found.append(output.priorities)
    assert np.std(found) > 0.1
