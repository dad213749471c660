"""Sizes by shape are those of the arrays that a learner makes."""

import dataclasses
import functools

import jax
import pytest

from learner.acting.act_step import example_page
from learner.planning import programs
from learner.planning.demand import Machines
from learner.planning.programs import message_bytes
from seedrl import config_file
from seedrl.agents.contract import build_agent
from seedrl.config_checks import page_steps
from seedrl.errors import ConfigError
from seedrl.networks.q_network import QNetworkConfig
from seedrl.replay.index import replay_bytes
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec

SPEC = EnvSpec(ArraySpec((4,), "float32"), DiscreteSpec(2))
CONFIG = config_file.load("cartpole_r2d2")
# As much, but for the network: one that is traced in a quarter of the time.
SMALL = dataclasses.replace(
    CONFIG,
    agent=dataclasses.replace(
        CONFIG.agent,
        network=QNetworkConfig(
            torso="mlp", torso_sizes=(), core="none", head_sizes=(), dueling=False
        ),
    ),
)
ONE, TWO = Machines(), Machines(learning=2, acting=2)
programs_of = functools.cache(programs.programs_of)  # traced once for several tests


def test_sizes_are_those_of_the_arrays() -> None:
    found = programs_of(CONFIG, SPEC, slots=32, machines=ONE)
    agent = build_agent(CONFIG.agent, SPEC)
    page = example_page(agent, SPEC, page_steps(CONFIG))
    pages = CONFIG.replay.capacity_steps // page_steps(CONFIG)
    assert found.replay_bytes == pytest.approx(replay_bytes(page, pages), rel=0.01)
    params = jax.eval_shape(agent.init, jax.random.PRNGKey(0))
    of_params = sum(leaf.size * 4 for leaf in jax.tree.leaves(params))
    # Parameters, those of the target, and two moments of each.
    assert found.state_bytes == pytest.approx(4 * of_params, rel=0.01)
    # A step goes through each weight once; an update of 16 sequences of 34 rows many times.
    assert found.act_flops == pytest.approx(2 * of_params / 4, rel=0.05)
    assert found.update_flops > 16 * 34 * found.act_flops


def test_devices_share_the_replay_and_the_batch() -> None:
    one = programs_of(SMALL, SPEC, slots=32, machines=ONE)
    two = programs_of(SMALL, SPEC, slots=32, machines=TWO)
    assert two.replay_bytes == pytest.approx(one.replay_bytes / 2, rel=0.01)
    assert two.state_bytes == one.state_bytes
    assert two.update_flops == pytest.approx(one.update_flops, rel=0.01)
    with pytest.raises(ConfigError, match="expected a multiple of the 3 devices"):
        programs_of(SMALL, SPEC, slots=32, machines=ONE, hosts=3)


def test_devices_that_act_share_the_slots() -> None:
    both = programs_of(SMALL, SPEC, slots=32, machines=TWO)
    # Where one of those that learn acts for all, as in rounds.
    first = programs_of(SMALL, SPEC, slots=32, machines=Machines(learning=2, acting=1))
    alone = programs_of(SMALL, SPEC, slots=32, machines=ONE)
    assert both.acting_bytes < first.acting_bytes == alone.acting_bytes
    assert both.replay_bytes == first.replay_bytes


def test_a_replay_that_no_device_could_hold_is_still_measured() -> None:
    replay = dataclasses.replace(SMALL.replay, capacity_steps=2 * 10**9)
    config = dataclasses.replace(SMALL, replay=replay)
    assert programs_of(config, SPEC, slots=32, machines=ONE).replay_bytes > 2**36


def test_bytes_of_a_message_are_those_of_step_and_answer() -> None:
    # 16 of the header, and for each of 8 rows 16 of the observation, 4 of the reward, 1 of the step
    # type, padded; the answer has a header and 4 for each.
    assert message_bytes(SPEC, 8) == pytest.approx(16 + 8 * 21 + 16 + 8 * 4, abs=8 * 8)
