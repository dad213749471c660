"""The bundled configurations: each can be run, and those of images can be built."""

import json

import pytest

from seedrl import config_io
from seedrl.config import check
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec


@pytest.mark.parametrize("name", config_io.bundled_names())
def test_each_config_passes_the_checks(name: str) -> None:
    check(config_io.load(name))
    assert config_io.summary(name)
    assert name.endswith(("_r2d2", "_apex", "_impala", "_ppo", "_sac", "_grpo"))


@pytest.mark.parametrize("name", ["atari_r2d2", "pong_ppo"])
def test_agents_of_images_can_be_built(name: str) -> None:
    config = config_io.load(name)
    size = json.loads(config.environment.arguments)
    shape = (size.get("img_height", 84), size.get("img_width", 84))
    spec = EnvSpec(ArraySpec(shape, "uint8"), DiscreteSpec(18))
    assert config.agent.build(spec).window == config.agent.window


def test_the_learning_rate_of_pong_reaches_0_about_when_the_run_ends() -> None:
    config = config_io.load("pong_ppo")
    assert config.agent.learning_rate_decay_steps == config.learning.total_steps
