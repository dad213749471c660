"""What a run does before anything moves."""

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest

from learner.checkpoints.run_folder import Resume, RunFolder
from learner.multihost.agreement import Hosts
from learner.processes.stop import StopRequest
from learner.reports import Reports
from learner.runtime.worker import Deaths
from learner.train import _wait_for_env_server, train
from seedrl import checkpoints, config_io
from seedrl.agents.r2d2 import R2D2Config
from seedrl.checkpoints import Checkpoint, best_directory, best_return, encode_spec
from seedrl.config_io import to_json
from seedrl.errors import CheckpointError, ConfigError, UserError
from seedrl.networks.config import QNetworkConfig
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec
from tests import own_process
from tests.learner.report.event_files import first_steps


@pytest.fixture
def process() -> Iterator[None]:
    """Puts back what a run changes of its process."""
    with own_process.restored():
        yield


def test_a_resumed_run_keeps_its_best_checkpoint_until_a_score_is_higher(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with contextlib.closing(RunFolder(tmp_path)) as folder:
        folder.checkpoint("auto")  # there is none: it was killed before its first one
        assert folder.best() is None
        meta = {"evaluation": {"mean_return": 7.5, "episodes": 20}}
        path = checkpoints.save(best_directory(tmp_path), 3, {"x": np.zeros(2)}, meta, keep=1)
        best = folder.best()
        assert best is not None and best_return(best) == 7.5
        (path / "meta.json").write_text("{}")
        assert folder.best() is None
    assert "no best checkpoint until the next score" in caplog.text


@pytest.mark.parametrize(("resumed", "seconds", "frames"), [(True, 30.0, 404.0), (False, 0.0, 4.0)])
def test_time_and_counts_of_a_run_continue_when_it_is_resumed(
    tmp_path: Path, resumed: bool, seconds: float, frames: float
) -> None:
    meta = {"env_steps": 100, "totals": {"frames": 400.0, "elapsed_seconds": 30.0}}
    checkpoint = Checkpoint(1, tmp_path, meta) if resumed else None
    folder = RunFolder(tmp_path)
    with (
        contextlib.closing(folder),
        Reports(config_io.load("cartpole_r2d2"), "mine", folder, checkpoint) as reports,
    ):
        reports.metrics.count("frames", 4)
        values = reports.metrics.flush(env_steps=110, updates=2)
    assert values["elapsed_seconds"] >= seconds
    assert values["frames"] == frames
    (events,) = (tmp_path / "tb").iterdir()
    assert first_steps(events) == [101 if resumed else 0]


@pytest.mark.parametrize(
    ("resume", "num_devices", "field"),
    [("auto", 16, "learning.num_devices"), ("must", 0, "--resume auto")],
)
@pytest.mark.usefixtures("process")
def test_a_run_that_cannot_start_lets_others_have_its_folder(
    tmp_path: Path, resume: Resume, num_devices: int, field: str
) -> None:
    config = config_io.load("cartpole_r2d2")
    learning = dataclasses.replace(config.learning, num_devices=num_devices)
    config = dataclasses.replace(config, learning=learning)
    with pytest.raises(UserError) as caught:
        train(config, workdir=tmp_path, resume=resume)
    assert field in str(caught.value)
    RunFolder(tmp_path).close()


class OtherQNetworkConfig(QNetworkConfig):
    """Has the arrays of the Q-network, and another meaning."""


@pytest.mark.usefixtures("process")
def test_a_run_of_another_agent_is_left_as_it_is(tmp_path: Path) -> None:
    config = config_io.load("cartpole_r2d2")
    checkpoints.save(tmp_path / "checkpoints", 3, {}, {"config": to_json(config)}, keep=2)
    before = sorted(path.name for path in tmp_path.iterdir())
    replay = dataclasses.replace(config.replay, min_steps=10_000)
    agent = R2D2Config(network=OtherQNetworkConfig())
    other = dataclasses.replace(config, agent=agent, replay=replay)
    with pytest.raises(ConfigError) as caught:
        train(other, workdir=tmp_path)
    assert "agent.network.type" in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", *before]


@pytest.mark.usefixtures("process")
def test_what_the_checkpoint_does_not_hold_is_refused_before_the_run_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_io.load("cartpole_r2d2")
    spec = encode_spec(EnvSpec(ArraySpec((4,), "float32"), DiscreteSpec(2)))
    meta = {"config": to_json(config), "env_steps": 1, "totals": {}, "env_spec": spec}
    checkpoints.save(tmp_path / "checkpoints", 3, {}, meta, keep=2)
    monkeypatch.setattr("learner.train.Reports", mock.Mock(side_effect=AssertionError))
    with pytest.raises(CheckpointError) as caught:
        train(config, workdir=tmp_path)
    assert "params/" in str(caught.value)


def test_who_waits_for_env_servers_hears_of_a_thread_that_cannot_bring_any() -> None:
    deaths, looks, death = Deaths(), iter([None, None]), OSError("no more sockets")

    def look(timeout: float) -> None:
        next(looks)
        deaths.first = "links", death

    hub: Any = SimpleNamespace(wait_for_spec=look)
    with pytest.raises(RuntimeError) as caught:
        _wait_for_env_server(hub, Hosts(), StopRequest(), deaths.raise_first)
    assert caught.value.__cause__ is death
    assert next(looks) is None
