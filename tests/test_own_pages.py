"""docs/own_network.md and docs/own_agent.md: their blocks run, their tables are what happens."""

import dataclasses
import doctest
import importlib
import json
import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from learner.acting.act_step import build_act_programs, example_page
from learner.cli import train
from learner.cli.arguments import parse
from learner.learning.learn_step import AXIS, build_learn_programs
from seedrl import config_io
from seedrl.agents.agent import Agent
from seedrl.agents.r2d2 import R2D2Config
from seedrl.config_io import to_json
from seedrl.errors import ConfigError
from seedrl.networks.config import QNetworkConfig
from seedrl.networks.network import Network, NetworkInput
from seedrl.replay.experience import Experience, Scale
from seedrl.replay.prioritized import ReplayConfig
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec
from seedrl.types import StepType, TimeStep, Tree
from tests.seedrl.random_parameters import random_parameters
from tests.tools.documented.commands import ROOT, write_files

NETWORK, AGENT = (ROOT / "docs" / f"own_{name}.md" for name in ("network", "agent"))
_SPEC = EnvSpec(ArraySpec((5,), "float32"), DiscreteSpec(4))
_SMALL = QNetworkConfig(torso_sizes=(8,), core="gru", core_size=8, head_sizes=())
_BATCH = 3


@pytest.fixture(autouse=True)
def _modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The modules that the pages import from."""
    write_files(AGENT, tmp_path)
    for folder in (tmp_path, ROOT / "docs" / "examples" / "own_network"):
        monkeypatch.syspath_prepend(folder)


@pytest.mark.parametrize("page", [NETWORK, AGENT], ids=lambda page: page.stem)
def test_what_the_page_shows_is_what_python_answers(page: Path) -> None:
    blocks = re.findall(r"```pycon\n(.*?)```", page.read_text(), re.DOTALL)
    session = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, page.name, str(page), 0)
    assert len(session.examples) > 10
    answers: list[str] = []
    result = doctest.DocTestRunner().run(session, out=answers.append)
    assert result.failed == 0, "".join(answers)


def _table(page: Path, heading: str) -> dict[str, str]:
    """The first two columns of the table whose head begins so; without backticks and prose."""
    (body,) = re.findall(rf"\| {heading} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", page.read_text())
    rows = [[cell.strip() for cell in line.split("|")[1:3]] for line in body.splitlines()]
    return {name.strip("`"): re.findall("`(.*?)`", what)[0] for name, what in rows}


def _shown(leaf: Any, sizes: dict[int, str]) -> str:
    """Shape and dtype of an array as the pages write them."""
    shape = ", ".join("*shape" if size == 5 else sizes.get(size, "...") for size in leaf.shape)
    return f"[{shape}] {leaf.dtype}"


def _seen_by_learning(agent: Agent) -> dict[str, Tree]:
    """What the learner's own update program gives to the agent; it is traced, and not compiled."""
    seen: dict[str, Tree] = {}

    def update(state: Any, sequence: Any, weights: Any, key: Any, mean: Any) -> Any:
        seen.update(sequence=sequence, weights=weights)
        return agent.update(state, sequence, weights, key, mean)

    page = example_page(agent, _SPEC, agent.window.stride)
    scale = Scale(1, _BATCH, training_slots=2, device_bytes=2**40, device_name="cpu")
    experience: Experience = ReplayConfig(capacity_steps=1_000).build(
        agent.window, page=page, initial_priorities=agent.initial_priorities, scale=scale
    )
    memory = experience.memory
    programs = build_learn_programs(agent._replace(update=update), memory, batch_per_device=_BATCH)
    learn = jax.vmap(programs.learn, in_axes=(None, 0, None, None), axis_name=AXIS)

    def one_update(key: Any) -> Any:
        stored = jax.tree.map(lambda leaf: leaf[None], memory.init(page))
        return learn(programs.init(key), stored, (), np.bool_(True))

    jax.eval_shape(one_update, jax.random.PRNGKey(0))
    return seen


def _build(**settings: Any) -> Agent:
    config = importlib.import_module("my_package.recurrent_q").RecurrentQConfig
    agent: Agent = config(network=_SMALL, **settings).build(_SPEC)
    return agent


def test_a_loss_gets_what_the_table_says() -> None:
    agent = _build(burn_in=2, unroll=7)
    seen = _seen_by_learning(agent)
    sizes = {agent.window.length: "T", _BATCH: "B"}
    steps, carry = seen["sequence"]
    found = {
        **{f"steps.timestep.{name}": leaf for name, leaf in steps.timestep._asdict().items()},
        **{f"steps.{name}": getattr(steps, name) for name in ("action", "version", "extras")},
        "weights": seen["weights"],
        "carry": jax.tree.leaves(carry)[0],
    }
    table = _table(AGENT, "of `sequence`")
    assert set(table) == set(found)
    for name, leaf in found.items():
        # Where the page gives no dtype it is the environment's or the agent's own.
        shown = _shown(leaf, sizes)
        assert shown.startswith(table[name]), name


def test_a_network_gets_what_the_table_says(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[NetworkInput, Any]] = []

    def build(config: QNetworkConfig, spec: EnvSpec) -> Network:
        network = original(config, spec)

        def unroll(params: Any, carry: Any, inputs: NetworkInput) -> Any:
            calls.append((inputs, carry))
            return network.unroll(params, carry, inputs)

        return network._replace(unroll=unroll)

    original = QNetworkConfig.build
    monkeypatch.setattr(QNetworkConfig, "build", build)
    agent = R2D2Config(network=_SMALL, burn_in=2, unroll=6, n_steps=1, stride=6).build(_SPEC)
    _seen_by_learning(agent)
    lengths = {inputs.reward.shape[0] for inputs, _ in calls}
    # Acting, burn-in and the rest, as the page says.
    assert lengths == {1, 2, 6 + 1}
    table = _table(NETWORK, "field")
    inputs, _ = next(call for call in calls if call[0].reward.shape[0] == 7)
    assert set(table) == set(inputs._fields)
    for name, leaf in inputs._asdict().items():
        assert _shown(leaf, {7: "T", _BATCH: "B"}).startswith(table[name]), name


def test_the_tables_have_all_fields_of_the_bundles() -> None:
    agent_rows = re.findall(r"^\| `(\w+)` \|", AGENT.read_text(), re.MULTILINE)
    assert set(Agent._fields) <= set(agent_rows)
    network_rows = re.findall(r"^\| `(\w+)` \|", NETWORK.read_text(), re.MULTILINE)
    assert set(Network._fields) <= set(network_rows)


def test_a_row_holds_what_was_done_on_it_and_the_carry_is_from_before() -> None:
    agent = _build(burn_in=0, unroll=4)
    page = example_page(agent, _SPEC, agent.window.stride)
    exploration = np.zeros(2, np.float32)
    programs = build_act_programs(agent, page, num_training=2, num_slots=2, exploration=exploration)
    params = random_parameters(agent.init)
    state = programs.init(jax.random.PRNGKey(1))
    rng = np.random.default_rng(0)
    actions, slots = [], np.arange(2)
    for position in range(4):
        step_type = StepType.FIRST if position == 0 else StepType.MID
        timestep = TimeStep(
            np.full(2, step_type, np.uint8),
            np.full(2, position, np.float32),
            np.ones(2, np.float32),
            rng.normal(size=(2, 5)).astype(np.float32),
        )
        number, version = np.uint32(position), np.int32(7)
        state, action = programs.act(
            state, params, version, number, slots, np.full(2, position), timestep
        )
        actions.append(np.asarray(action))
    stored = jax.device_get(programs.take_pages(state, slots))
    assert np.array_equal(stored.steps.action, np.stack(actions, axis=1))
    assert np.array_equal(stored.steps.timestep.reward, [[0, 1, 2, 3]] * 2)
    # The first carry is the initial one: nothing of row 0 is in it.
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(stored.carry))
    assert np.array_equal(np.argmax(stored.steps.extras, axis=-1), stored.steps.action)


def test_a_field_refuses_a_value_with_its_own_line(tmp_path: Path) -> None:
    argv = [str(tmp_path / "my_config.py"), "--agent.gamma", "1.5"]
    with pytest.raises(ConfigError) as refusal:
        parse(train.TrainOptions, argv, prog="seedrl train")
    assert "agent.gamma: expected 0 to 1, got 1.5" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_every_field_of_ones_own_is_a_flag_and_is_saved(tmp_path: Path) -> None:
    flags = ["--agent.burn-in", "1", "--agent.network.core", "gru"]
    _, config = parse(train.TrainOptions, [str(tmp_path / "my_config.py"), *flags], prog="train")
    assert (config.agent.burn_in, config.agent.network.core) == (1, "gru")
    saved = json.loads(to_json(config))["config"]["agent"]
    assert {field.name for field in dataclasses.fields(config.agent)} <= set(saved)
    assert config_io.load(tmp_path / "my_config.py").agent.window.length == 17
