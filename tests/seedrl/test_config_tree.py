"""What two configurations differ in."""

import dataclasses

from seedrl import config_file
from seedrl.config import Config, EnvironmentConfig
from seedrl.config_tree import difference, fields_of


def test_a_difference_names_each_field() -> None:
    config = config_file.load("cartpole_r2d2")
    other = dataclasses.replace(
        config,
        seed=3,
        agent=dataclasses.replace(config.agent, unroll=100),
    )
    assert difference(config, config) == []
    assert difference(config, other) == [
        f"agent.unroll: expected {config.agent.unroll}, got 100",
        "seed: expected 0, got 3",
    ]


def test_the_fields_of_a_configuration_are_its_leaves() -> None:
    fields = fields_of(config_file.load("cartpole_r2d2"))
    assert fields["seed"] == 0 and fields["environment.id"] == "CartPole-v1"
    assert isinstance(fields["agent.network.torso_sizes"], tuple)
    assert not {"agent", "agent.type", "agent.network"} & fields.keys()


def test_a_difference_of_classes_lists_the_fields_of_both() -> None:
    @dataclasses.dataclass(frozen=True)
    class Other:
        gamma: float = 0.5

    config = Config(environment=EnvironmentConfig(id="x"), agent=EnvironmentConfig(id="y"))
    other = dataclasses.replace(config, agent=Other())
    lines = difference(config, other)
    assert lines[0] == "agent.type: expected EnvironmentConfig, got Other"
    assert "agent.id: expected 'y', got nothing" in lines
    assert lines[-1] == "agent.gamma: expected nothing, got 0.5"
