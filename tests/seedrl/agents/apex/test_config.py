"""Ape-X's configuration: the paper's settings, and what is refused."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedrl.agents.apex.config import ApexConfig
from seedrl.agents.apex.functions import optimizer_of
from seedrl.agents.contract import build_agent
from seedrl.errors import ConfigError
from seedrl.networks.config import QNetworkConfig
from seedrl.specs import ArraySpec, BoxSpec, DiscreteSpec, EnvSpec
from tests.seedrl.agents.apex.table_network import SPEC

IMAGES = EnvSpec(ArraySpec((40, 40), "uint8"), DiscreteSpec(3))


def test_defaults_are_those_of_the_paper() -> None:
    config = ApexConfig()
    assert config.window == (0, 1, 3, 1)
    assert (config.gamma, config.learning_rate, config.rmsprop_decay) == (0.99, 0.00025 / 4, 0.95)
    assert (config.optimizer, config.optimizer_epsilon) == ("rmsprop", 1.5e-7)
    assert (config.max_gradient_norm, config.target_update_interval) == (40, 2500)
    assert (config.network.core, config.network.dueling, config.value_scaling) == (
        "none",
        True,
        False,
    )


def test_each_slot_explores_by_the_ladder() -> None:
    agent = ApexConfig().build(SPEC)
    expected = [0.4, 0.16, 0.064, 0.0256, 0.01024, 0.0041, 0.00164, 0.00066]
    np.testing.assert_allclose(agent.exploration(8), expected, atol=6e-6)
    np.testing.assert_allclose(agent.exploration(4), [0.4, 0.04716, 0.00556, 0.00066], atol=6e-6)


def test_the_optimizer_is_centred_rmsprop_on_clipped_gradients() -> None:
    config = ApexConfig(max_gradient_norm=1.0, learning_rate=0.5, optimizer_epsilon=0.01)
    optimizer = optimizer_of(config)
    gradient = {"w": jnp.array([30.0, 40.0])}
    step = jax.jit(optimizer.update)
    state, mean, square = jax.jit(optimizer.init)(gradient), 0.0, 0.0
    clipped = np.array([0.6, 0.8])
    for _ in range(3):
        update, state = step(gradient, state, gradient)
        mean = 0.95 * mean + 0.05 * clipped
        square = 0.95 * square + 0.05 * clipped**2
        expected = -0.5 * clipped / np.sqrt(square - mean**2 + 0.01)
        np.testing.assert_allclose(update["w"], expected, rtol=1e-5)


def test_a_network_with_memory_is_refused() -> None:
    with pytest.raises(ConfigError, match="carries more .* set agent.network.core to .none., or"):
        build_agent(ApexConfig(network=QNetworkConfig()), IMAGES)


def test_frames_that_no_row_would_fill_are_refused() -> None:
    message = "agent.earlier_rows: expected at least 3, for the network stacks 4 frames, got 2"
    with pytest.raises(ConfigError, match=message):
        build_agent(ApexConfig(earlier_rows=2), IMAGES)
    assert build_agent(ApexConfig(earlier_rows=3), IMAGES).window == (3, 1, 3, 1)


def test_actions_of_a_box_are_refused() -> None:
    spec = EnvSpec(SPEC.observation, BoxSpec((1,), (-1.0,), (1.0,)))
    with pytest.raises(ConfigError, match="Ape-X chooses among discrete actions"):
        build_agent(ApexConfig(), spec)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"n_steps": 0}, "agent.n_steps: expected at least 1, got 0"),
        ({"earlier_rows": -1}, "agent.earlier_rows: expected at least 0, got -1"),
        ({"learning_rate": 0.0}, "agent.learning_rate: expected more than 0, got 0.0"),
        ({"exploration_base": 1.5}, "agent.exploration_base: expected 0 to 1, got 1.5"),
    ],
)
def test_fields_that_cannot_work_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ApexConfig(**fields)
