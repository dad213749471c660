"""What a session takes from a checkpoint, and what it refuses."""

import dataclasses
import functools
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from learner import build
from learner.acting.act_step import example_page
from learner.acting.actor import build_actor
from learner.build import (
    StartFrom,
    _exploration,
    _gauge_constants,
    _learner_state,
    _replay,
    plan_geometry,
    resumed_key,
    scale,
)
from learner.checkpoints.restoring import initial_checkpoint
from learner.checkpoints.saver import Saver
from learner.learning import learn_step
from learner.learning.learn_step import LearnerState
from learner.learning.loop import Snapshot
from learner.learning.page_routing import ShardedReplay
from learner.serving.leases import lanes_of
from seedrl import checkpoints
from seedrl.agents.agent import ActOutput
from seedrl.agents.r2d2 import R2D2Config
from seedrl.checkpoints import Checkpoint, best_directory
from seedrl.config import Config, EnvironmentConfig, LearningConfig, ReplayConfig, ServingConfig
from seedrl.config_io import to_json
from seedrl.errors import CheckpointError, ConfigError
from seedrl.networks.config import QNetworkConfig
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec
from seedrl.types import Array, StepType, TimeStep, Tree

SPEC = EnvSpec(ArraySpec((3,), "float32"), DiscreteSpec(2))
CONFIG = Config(
    environment=EnvironmentConfig(id="CartPole-v1"),
    agent=R2D2Config(
        network=QNetworkConfig(
            torso="mlp",
            torso_sizes=(),
            core="gru",
            core_size=4,
            head_sizes=(),
            dueling=False,
            frame_stack=1,
        ),
        burn_in=0,
        unroll=4,
        n_steps=1,
        stride=4,
    ),
    serving=ServingConfig(training_slots=2, evaluation_slots=0),
    replay=ReplayConfig(capacity_steps=64, min_steps=8),
    learning=LearningConfig(num_devices=1, batch_sequences=2),
)


def _build(config: Config, checkpoint: Checkpoint | None) -> ShardedReplay:
    geometry, agent = plan_geometry(config), config.agent.build(SPEC)
    page = example_page(agent, SPEC, geometry.page_steps)
    experience = config.replay.build(
        agent.window,
        page=page,
        initial_priorities=agent.initial_priorities,
        scale=scale(config, geometry),
    )
    return _replay(config, geometry, experience, page, checkpoint)


def _saved(directory: Path) -> Checkpoint:
    shards = _build(CONFIG, None)
    for stream in (7, 7, 8):
        shards.indices[0].plan([stream])
    state: Any = LearnerState((), (), (), np.int32(3), (), np.zeros(2, np.uint32))
    replay = jax.tree.map(np.asarray, shards.memory)
    saver = Saver(directory, keep=2)
    saver.start(
        Snapshot(state, [index.state() for index in shards.indices], replay),
        {"config": to_json(CONFIG)},
    )
    saver.wait()
    found = checkpoints.latest(directory / "checkpoints")
    assert found is not None and saver.failure is None
    return found


def test_a_saved_replay_goes_on_without_its_streams(tmp_path: Path) -> None:
    (index,) = _build(CONFIG, _saved(tmp_path)).indices
    assert index.num_sequences == 1
    assert index.state()["num_inserted"] == 3
    assert index.state()["streams"] == []


def test_a_saved_replay_takes_the_place_of_the_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = _saved(tmp_path)
    empty: list[Any] = []
    stack_shards = build.stack_shards

    def kept(*arguments: Any) -> Any:
        empty.append(stack_shards(*arguments))
        return empty[0]

    monkeypatch.setattr(build, "stack_shards", kept)
    restored = jax.tree.leaves(_build(CONFIG, checkpoint).memory)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(empty))
    assert not any(leaf.is_deleted() for leaf in restored)


@pytest.mark.parametrize(
    ("field", "section", "changes"),
    [
        # The pages are the same, but a sequence reaches into more of them.
        ("agent.unroll: expected 4, got 9", "agent", {"unroll": 9}),
        ("replay.capacity_steps: expected 64, got 128", "replay", {"capacity_steps": 128}),
    ],
)
def test_a_saved_replay_of_another_geometry_is_refused_by_field(
    tmp_path: Path, field: str, section: str, changes: dict[str, Any]
) -> None:
    changed = dataclasses.replace(getattr(CONFIG, section), **changes)
    config = dataclasses.replace(CONFIG, **{section: changed})
    with pytest.raises(CheckpointError) as caught:
        _build(config, _saved(tmp_path))
    assert str(caught.value) == (
        f"{tmp_path}/checkpoints/000000000003 does not fit this config: {field}; start a new "
        "workdir or restore the config"
    )


def _fresh_state(config: Config, initial: Checkpoint | None) -> LearnerState:
    geometry, agent = plan_geometry(config), config.agent.build(SPEC)
    programs: Any = SimpleNamespace(init=functools.partial(learn_step.initial_state, agent))
    start, sizes = StartFrom(initial=initial), scale(config, geometry)
    state = _learner_state(config, agent, programs, jax.random.PRNGKey(0), sizes, start)
    return jax.tree.map(np.asarray, state)


def test_a_run_begins_with_the_parameters_of_another_and_nothing_else_of_it(
    tmp_path: Path,
) -> None:
    fresh = _fresh_state(CONFIG, None)
    params = jax.tree.map(lambda leaf: leaf + 1, fresh.params)
    meta = {"config": to_json(CONFIG)}
    saved = fresh._replace(params=params, updates=np.int32(9), key=fresh.key + 1)
    checkpoints.save(tmp_path / "checkpoints", 9, saved._asdict(), meta, keep=2)
    initial = initial_checkpoint(tmp_path)
    found = _fresh_state(CONFIG, initial)
    expected = fresh._replace(params=params, target=params)
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    network = dataclasses.replace(CONFIG.agent.network, core_size=8)
    agent = dataclasses.replace(CONFIG.agent, network=network, learning_rate=0.5)
    with pytest.raises(ConfigError) as caught:
        _fresh_state(dataclasses.replace(CONFIG, agent=agent), initial)
    start = f"--init-from: the parameters of {initial.path} do not fit the network of this run: "
    # Of fields the network's alone: learning_rate, say, may differ.
    field, *arrays, more = str(caught.value).removeprefix(start).split("; ")
    assert field == "agent.network.core_size: expected 8, got 4"
    assert arrays[0] == (
        "params/params/GRU_0/input/bias: expected float32[24], checkpoint has float32[12]"
    )
    assert (len(arrays), re.sub(r"\d+", "N", more)) == (3, "and N more arrays")


def test_a_run_begins_with_the_best_parameters_where_they_are_meant_or_alone(
    tmp_path: Path,
) -> None:
    meta = {"config": to_json(CONFIG), "evaluation": {"mean_return": 7.5, "episodes": 20}}
    best = checkpoints.save(best_directory(tmp_path), 3, {}, meta, keep=None)
    assert initial_checkpoint(tmp_path).path == best
    newest = checkpoints.save(tmp_path / "checkpoints", 9, {}, meta, keep=2)
    assert initial_checkpoint(tmp_path).path == newest
    assert initial_checkpoint(tmp_path / "checkpoints" / "best").path == best


def test_a_run_without_a_checkpoint_is_nothing_to_begin_with(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--init-from: expected a checkpoint in .*; train first"):
        initial_checkpoint(tmp_path)


def _say_exploration(
    params: Tree, carry: Tree, step: TimeStep, exploration: Array, key: Array
) -> ActOutput:
    return ActOutput(jnp.round(1000 * exploration).astype(jnp.int32), carry, ())


def test_training_slots_explore_as_the_agent_says_and_evaluation_slots_all_alike() -> None:
    serving = ServingConfig(training_slots=3, evaluation_slots=2)
    agent = CONFIG.agent.build(SPEC)._replace(
        act=_say_exploration,
        exploration=lambda size: np.linspace(0.5, 0.1, size),
        evaluation_exploration=0.007,
    )
    config = dataclasses.replace(CONFIG, serving=serving)
    geometry = plan_geometry(config)
    said = []
    for device in (0, 1):
        lanes = [lane for lane in lanes_of(3, 2, num_devices=2) if lane.device == device]
        actor = build_actor(
            agent,
            SPEC,
            example_page(agent, SPEC, 4),
            lanes=lanes,
            exploration=_exploration(config, geometry, agent),
            key=jax.random.PRNGKey(0),
            device=jax.local_devices()[device],
            rungs=1,
        )
        size = actor.num_slots
        types, zeros = np.full(size, StepType.FIRST, np.uint8), np.zeros(size, np.float32)
        timestep = TimeStep(types, zeros, zeros, np.zeros((size, 3), np.float32))
        slots, positions = np.arange(size, dtype=np.int32), np.zeros(size, np.int32)
        numbers = (np.int32(0), np.uint32(0))
        _, action = actor._programs.act(actor._state, (), *numbers, slots, positions, timestep)
        said.append(action.tolist())
    # The first device acts for the training slots 0 and 2, and evaluates; the other one for slot 1.
    # Of three rungs slot 1, at frac(φ) of the way, has the last one.
    assert said == [[500, 300, 7, 7], [100]]


@pytest.mark.parametrize(("decay_updates", "shown"), [(0, {"learning_rate": 0.5}), (9, {})])
def test_a_learning_rate_that_decays_is_no_constant(
    decay_updates: int, shown: dict[str, float]
) -> None:
    agent = dataclasses.replace(
        CONFIG.agent, learning_rate=0.5, learning_rate_decay_updates=decay_updates
    )
    gauges: dict[str, float] = {}
    metrics: Any = SimpleNamespace(gauge=gauges.__setitem__)
    _gauge_constants(dataclasses.replace(CONFIG, agent=agent), agent.build(SPEC), metrics)
    assert gauges.pop("exploration_mean") > 0
    assert gauges == shown


def test_sessions_that_resume_from_one_checkpoint_explore_with_keys_of_their_own() -> None:
    key = jax.random.PRNGKey(3)

    def keys(schedule: str) -> set[tuple[int, ...]]:
        return {tuple(resumed_key(key, schedule, 7).tolist()) for _ in range(4)}

    assert len(keys("asynchronous")) == len(keys("synchronous")) == 4
    assert len(keys("deterministic")) == 1 and keys("deterministic") != {tuple(key.tolist())}
