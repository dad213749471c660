import dataclasses
import logging
import threading
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from learner.acting.act_step import ActingState
from learner.acting.loop import ActingSnapshot
from learner.learning.learn_step import LearnerState
from learner.learning.snapshot import Snapshot
from learner.saving.saver import (
    Saver,
    restore_acting,
    restore_replay,
    restore_state,
    restore_streams,
    streams_go_on,
)
from learner.serving.core import Serving
from learner.serving.leases import SlotTable
from seedrl import checkpoints
from seedrl.agents.r2d2 import R2D2Config
from seedrl.config import Config, EnvironmentConfig, ReplayConfig
from seedrl.config_json import to_json
from seedrl.errors import CheckpointError
from seedrl.networks.q_network import QNetworkConfig
from seedrl.replay.index import PageIndex
from seedrl.replay.replay import ReplayState
from seedrl.types import Page, StoredStep, TimeStep

CONFIG = Config(
    environment=EnvironmentConfig(id="CartPole-v1"),
    agent=R2D2Config(network=QNetworkConfig(core_size=8)),
)
META: dict[str, Any] = {"config": to_json(CONFIG), "env_steps": 12}


def _state(width: int = 8, *, updates: int = 5) -> LearnerState:
    params = {"core": np.arange(2 * width, dtype=np.float32).reshape(2, width)}
    return LearnerState(
        params=params,
        target=jax.tree.map(lambda leaf: leaf + 1, params),
        optimizer=jax.tree.map(np.asarray, optax.adam(0.1).init(params)),
        updates=np.int32(updates),
        extras=(),
        key=np.array([1, 2], np.uint32),
    )


def _replay(capacity: int = 3, *, seed: int = 0) -> ReplayState:
    """Two shards of `capacity` pages of two rows."""
    random, head = np.random.default_rng(seed), (2, capacity)

    def numbers(dtype: str, *shape: int) -> np.ndarray:
        return random.integers(0, 99, head + shape).astype(dtype)

    timestep = TimeStep(
        numbers("uint8", 2),
        numbers("float32", 2),
        numbers("float32", 2),
        {"image": numbers("uint8", 2, 4, 4), "more": (numbers("float32", 2, 3),)},
    )
    steps = StoredStep(timestep, numbers("int32", 2), numbers("int32", 2), ())
    return ReplayState(Page(steps, (numbers("float32", 5),)), numbers("int32"), numbers("float32"))


def _save(directory: Path, snapshot: Snapshot) -> checkpoints.Checkpoint:
    saver = Saver(directory, keep=2)
    saver.start(snapshot, META)
    saver.wait()
    assert saver.failure is None
    found = checkpoints.latest(directory)
    assert found is not None
    return found


def _abstract(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), tree)


def _assert_same(got: Any, expected: Any) -> None:
    assert jax.tree.structure(got) == jax.tree.structure(expected)
    for left, right in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left, right)


def test_a_learner_state_comes_back_bit_by_bit(tmp_path: Path) -> None:
    found = _save(tmp_path, Snapshot(_state(), [], ()))
    assert (found.step, found.meta) == (5, META)
    restored = restore_state(found, _abstract(_state()), CONFIG)
    assert isinstance(restored, LearnerState)
    _assert_same(restored, _state())


def test_without_a_replay_none_comes_back(tmp_path: Path) -> None:
    found = _save(tmp_path, Snapshot(_state(), [{"not": "saved"}], ()))
    assert restore_replay(found, _abstract(_replay())) is None


def test_a_replay_and_its_indices_come_back(tmp_path: Path) -> None:
    window = R2D2Config(burn_in=1, unroll=2, n_steps=1, stride=2).window
    arguments: dict[str, Any] = {"capacity_pages": 3, "window": window, "page_steps": 2}
    indices = [PageIndex(**arguments) for _ in range(2)]
    for index, streams in zip(indices, ([4, 4, 9, 4], [5]), strict=True):
        for stream in streams:
            index.plan([stream])
    found = _save(tmp_path, Snapshot(_state(), [index.state() for index in indices], _replay()))
    restored = restore_replay(found, _abstract(_replay(seed=1)))
    _assert_same(restored, _replay())
    for index, saved in zip(indices, found.meta["replay_indices"], strict=True):
        fresh = PageIndex(**arguments)
        fresh.restore(saved)
        assert fresh.state() == index.state()
        assert fresh.num_sequences == index.num_sequences


@pytest.mark.parametrize(
    ("abstract", "message"),
    [
        (_replay(4), "expected uint8[2, 4, 2], {path} has uint8[2, 3, 2]; restore the config"),
        (_replay()._replace(next=np.zeros((2, 3))), "replay next: expected float64[2, 3], "),
        (_replay()._replace(mass=(_replay().mass, _replay().mass)), "replay mass.0: expected "),
    ],
)
def test_a_replay_of_another_shape_is_refused_by_name(
    tmp_path: Path, abstract: ReplayState, message: str
) -> None:
    found = _save(tmp_path, Snapshot(_state(), [{}], _replay()))
    with pytest.raises(CheckpointError) as caught:
        restore_replay(found, abstract)
    assert message.format(path=found.path) in str(caught.value)


def test_a_state_of_another_shape_is_refused_by_config_field(tmp_path: Path) -> None:
    found = _save(tmp_path, Snapshot(_state(8), [], ()))
    agent = dataclasses.replace(CONFIG.agent, network=QNetworkConfig(core_size=16))
    changed = dataclasses.replace(CONFIG, agent=agent, replay=ReplayConfig(min_steps=9), seed=4)
    with pytest.raises(CheckpointError) as caught:
        restore_state(found, _abstract(_state(16)), changed)
    assert str(caught.value) == (
        f"{found.path} does not fit this config: agent.network.core_size: expected 8, got 16; "
        "start a new workdir or restore the config"
    )


def test_a_state_of_another_shape_under_the_same_agent_is_refused_by_array(tmp_path: Path) -> None:
    found = _save(tmp_path, Snapshot(_state(8), [], ()))
    with pytest.raises(CheckpointError, match="params.core"):
        restore_state(found, _abstract(_state(16)), dataclasses.replace(CONFIG, seed=4))


def _acting(slots: int = 3) -> ActingSnapshot:
    state = ActingState((np.ones((slots, 2), np.float32),), _replay().pages, np.zeros(2, np.uint32))
    params, returns = _state().params, np.linspace(0, 1, slots)
    return ActingSnapshot(state, params, np.array(5), returns, np.arange(slots))


def _in_lock_step(training_slots: int = 3) -> Config:
    learning = dataclasses.replace(CONFIG.learning, regime="lock_step")
    serving = dataclasses.replace(CONFIG.serving, training_slots=training_slots)
    return dataclasses.replace(CONFIG, learning=learning, serving=serving)


def _serving(training_slots: int = 3) -> Serving:
    slots = SlotTable(training=training_slots, evaluation=0, seed=0)
    return Serving(slots, page_steps=2, deadline_seconds=0.0, is_lock_step=True)


def test_what_acting_needs_to_go_on_comes_back(tmp_path: Path) -> None:
    found = _save(tmp_path, Snapshot(_state(), [{}], _replay(), _acting()))
    nothing = jax.tree.map(np.zeros_like, _acting())
    _assert_same(restore_acting(found, nothing, CONFIG), _acting())
    _assert_same(restore_replay(found, _abstract(_replay())), _replay())


def test_acting_on_other_slots_is_refused_by_config_field(tmp_path: Path) -> None:
    found = _save(tmp_path, Snapshot(_state(), [{}], _replay(), _acting()))
    match = "does not fit this config: serving.training_slots: expected 32, got 4; start a new"
    with pytest.raises(CheckpointError, match=match):
        restore_acting(found, _acting(4), _in_lock_step(4))


@pytest.mark.parametrize("was_lock_step", [True, False])
@pytest.mark.parametrize("is_lock_step", [True, False])
def test_streams_go_on_only_from_lock_step_to_lock_step(
    tmp_path: Path, was_lock_step: bool, is_lock_step: bool
) -> None:
    lost = _serving()
    lost.lease(3, 1, "peer")
    lost.num_batches = 9
    meta = {**META, "streams": lost.state()} if was_lock_step else META
    path = checkpoints.save(tmp_path, 5, {}, meta, keep=2)
    found = checkpoints.Checkpoint(5, path, meta)
    config = _in_lock_step() if is_lock_step else CONFIG
    both = was_lock_step and is_lock_step
    assert streams_go_on(config, found) is both
    serving = _serving()
    restore_streams(found, serving, config)
    assert serving.state() == (lost.state() if both else _serving().state())


def test_streams_of_another_number_of_slots_are_refused(tmp_path: Path) -> None:
    meta = {**META, "streams": _serving(3).state()}
    found = checkpoints.Checkpoint(5, tmp_path, meta)
    match = "does not fit this config: serving.training_slots: expected 32, got 4; start a new"
    with pytest.raises(CheckpointError, match=match):
        restore_streams(found, _serving(4), _in_lock_step(4))


def test_one_save_waits_for_the_one_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, release, order = threading.Event(), threading.Event(), []

    def save(directory: Path, step: int, *_: Any, **__: Any) -> Path:
        order.append(("begin", step))
        entered.set()
        assert release.wait(20.0)
        order.append(("end", step))
        return directory

    monkeypatch.setattr(checkpoints, "save", save)
    saver = Saver(tmp_path, keep=2)
    assert not saver.is_busy
    saver.start(Snapshot(_state(updates=1), [], ()), META)
    assert entered.wait(20.0)
    assert saver.is_busy
    release.set()
    saver.start(Snapshot(_state(updates=2), [], ()), META)
    saver.wait()
    assert not saver.is_busy
    assert order == [("begin", 1), ("end", 1), ("begin", 2), ("end", 2)]


@pytest.mark.parametrize("error", [CheckpointError("disk full"), TypeError("a defect")])
def test_a_failed_save_is_kept_until_one_succeeds(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
) -> None:
    def fail(*_: Any, **__: Any) -> Path:
        raise error

    saver = Saver(tmp_path, keep=2)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "save", fail)
        saver.start(Snapshot(_state(), [], ()), META)
        saver.wait()
    assert saver.failure is error
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    saver.start(Snapshot(_state(), [], ()), META)
    saver.wait()
    assert saver.failure is None


def test_the_callers_meta_is_not_changed(tmp_path: Path) -> None:
    meta = dict(META)
    saver = Saver(tmp_path, keep=2)
    saver.start(Snapshot(_state(), [{}], _replay()), meta)
    meta["env_steps"] = -1
    saver.wait()
    found = checkpoints.latest(tmp_path)
    assert found is not None
    assert found.meta == {**META, "replay_indices": [{}]}
    assert "replay_indices" not in meta


def test_arrays_of_the_device_can_be_the_abstract_state(tmp_path: Path) -> None:
    found = _save(tmp_path, Snapshot(_state(), [], ()))
    on_device = jax.tree.map(jnp.asarray, _state(updates=0))
    _assert_same(restore_state(found, on_device, CONFIG), _state())
