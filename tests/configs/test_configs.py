"""The bundled configurations."""

import json

import pytest

from seedrl import config_io
from seedrl.config import check
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec

NAMES = [
    "atari_apex",
    "atari_impala",
    "atari_r2d2",
    "cartpole_apex",
    "cartpole_impala",
    "cartpole_masked_impala",
    "cartpole_masked_r2d2",
    "cartpole_ppo",
    "cartpole_r2d2",
    "catch_r2d2",
    "halfcheetah_ppo",
    "halfcheetah_sac",
    "lunarlander_apex",
    "lunarlander_ppo",
    "minatar_impala",
    "minatar_r2d2",
    "pendulum_masked_sac",
    "pendulum_ppo",
    "pendulum_sac",
    "pong_ppo",
    "pong_r2d2",
    "recall_impala",
    "recall_r2d2",
    "repeat_previous_impala",
    "repeat_previous_r2d2",
]


def test_the_bundled_configs_are_those_that_are_documented() -> None:
    assert config_io.bundled_names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_each_config_passes_the_checks(name: str) -> None:
    check(config_io.load(name))


def test_atari_has_the_settings_of_the_paper() -> None:
    config = config_io.load("atari_r2d2")
    agent = config.agent
    assert tuple(agent.window) == (40, 80, 5, 40)
    assert (agent.gamma, agent.learning_rate, agent.adam_epsilon) == (0.997, 1e-4, 1e-3)
    assert agent.target_update_interval == 2500
    assert (config.replay.capacity_steps, config.learning.batch_sequences) == (4_000_000, 64)
    assert (config.replay.priority_exponent, config.replay.importance_exponent) == (0.9, 0.6)


def test_apex_on_atari_has_the_settings_of_the_paper_and_can_be_built() -> None:
    config = config_io.load("atari_apex")
    agent, replay = config.agent, config.replay
    assert tuple(agent.window) == (3, 1, 3, 1)
    assert (agent.reward_clip, agent.learning_rate, agent.rmsprop_decay) == (1, 0.00025 / 4, 0.95)
    assert (replay.priority_exponent, replay.importance_exponent) == (0.6, 0.4)
    assert (replay.capacity_steps, replay.min_steps) == (2_000_000, 50_000)
    assert (config.learning.batch_sequences, config.serving.training_slots) == (512, 360)
    spec = EnvSpec(ArraySpec((84, 84), "uint8"), DiscreteSpec(18))
    assert agent.build(spec).window == agent.window  # its rows fill the stack of frames


def test_impala_on_atari_has_the_settings_of_the_paper_and_can_be_built() -> None:
    config = config_io.load("atari_impala")
    agent, rows = config.agent, 20 * 32
    assert tuple(agent.window) == (0, 20, 1, 21)
    assert config.learning.batch_sequences == 32
    assert (agent.gamma, agent.value_cost, agent.entropy_cost) == (0.99, 0.5, 0.01)
    assert (agent.reward_clip, agent.learning_rate) == (1, 6e-4)
    # The paper's loss is a sum over the rows.
    assert (agent.adam_b1, agent.adam_b2) == (0, 0.99)
    assert (agent.adam_epsilon * rows, agent.max_gradient_norm * rows) == (0.1, 40)
    spec = EnvSpec(ArraySpec((84, 84), "uint8"), DiscreteSpec(6))
    assert agent.build(spec).window == agent.window


def test_ppo_on_pong_can_be_built_for_its_small_frames() -> None:
    config = config_io.load("pong_ppo")
    size = json.loads(config.environment.arguments)
    spec = EnvSpec(ArraySpec((size["img_height"], size["img_width"]), "uint8"), DiscreteSpec(6))
    assert config.agent.build(spec).window == config.agent.window
    # The learning rate reaches 0 about when the run ends.
    rows = config.learning.batch_sequences * config.agent.window.length
    assert 0.9 < config.agent.learning_rate_decay_updates * rows / config.learning.total_steps < 1.1
