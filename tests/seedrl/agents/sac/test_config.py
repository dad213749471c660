"""SAC's configuration: the paper's settings, and what is refused."""

from typing import Any

import pytest

from seedrl.agents.contract import build_agent
from seedrl.agents.r2d2 import R2D2Config
from seedrl.agents.sac.config import SacConfig
from seedrl.errors import ConfigError
from seedrl.networks.config import BoxNetworkConfig
from seedrl.specs import ArraySpec, BoxSpec, DiscreteSpec, EnvSpec

SPEC = EnvSpec(ArraySpec((3,), "float32"), BoxSpec((2, 1), (-2.0, 0.0), (2.0, 4.0)))


def objective_of(config: SacConfig) -> Any:
    update: Any = config.build(SPEC).update
    return update.loss.args[0]


def test_defaults_are_those_of_the_paper() -> None:
    config = SacConfig()
    assert config.window == (0, 1, 1, 1)
    assert config.network.core == "none"
    assert SacConfig(burn_in=4, unroll=16).window == (4, 16, 1, 16)
    assert (config.gamma, config.target_rate) == (0.99, 0.005)
    assert (config.actor_learning_rate, config.critic_learning_rate) == (3e-4, 3e-4)
    assert (config.network.actor_sizes, config.network.critic_sizes) == ((256, 256), (256, 256))
    assert objective_of(config).target_entropy == -2.0
    assert objective_of(SacConfig(target_entropy=0.5)).target_entropy == 0.5


def test_other_actions_are_refused_by_either_agent() -> None:
    spec = EnvSpec(SPEC.observation, DiscreteSpec(3))
    with pytest.raises(ConfigError, match="SAC chooses real actions of a box, .* 3 discrete ones"):
        build_agent(SacConfig(), spec)
    with pytest.raises(ConfigError, match=r"box of shape \[2, 1\]; choose an agent for continuous"):
        build_agent(R2D2Config(), SPEC)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"burn_in": -1}, "agent.burn_in: expected at least 0, got -1"),
        ({"unroll": 0}, "agent.unroll: expected at least 1, got 0"),
        ({"gamma": 1.5}, "agent.gamma: expected 0 to 1, got 1.5"),
        ({"actor_learning_rate": 0.0}, "agent.actor_learning_rate: expected more than 0, got 0.0"),
        (
            {"critic_learning_rate": 0.0},
            "agent.critic_learning_rate: expected more than 0, got 0.0",
        ),
        ({"initial_temperature": 0.0}, "agent.initial_temperature: expected more than 0, got 0.0"),
        ({"target_rate": 0.0}, "agent.target_rate: expected more than 0, got 0.0"),
        ({"target_entropy": "-dim"}, "agent.target_entropy: expected float | None, got '-dim'"),
    ],
)
def test_fields_that_cannot_work_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, ConfigError)) as refused:
        SacConfig(**fields)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"actor_sizes": (0,)}, r"network.actor_sizes: expected sizes >= 1, got \(0,\)"),
        ({"lowest_log_std": 3.0}, "network.lowest_log_std: expected less than .* got 3.0"),
        ({"torso": "resnet"}, "network.torso: "),
        ({"core": "rnn"}, "network.core: "),
        ({"core_size": 0}, "network.core_size: expected at least 1, got 0"),
    ],
)
def test_fields_of_its_network_that_cannot_work_are_refused(
    fields: dict[str, Any], message: str
) -> None:
    with pytest.raises((ValueError, ConfigError), match=message):
        BoxNetworkConfig(**fields)
