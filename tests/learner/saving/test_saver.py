"""Saves in the background: one at a time, none forgotten."""

import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from learner.learning.snapshot import Snapshot
from learner.saving.saver import Saver
from seedrl.errors import CheckpointError
from seedrl.storage import checkpoints
from tests.learner.saving.snapshots import META, replay, state
from tests.patience import SECONDS


def test_one_save_waits_for_the_one_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, release, order = threading.Event(), threading.Event(), []

    def save(directory: Path, step: int, *_: Any, **__: Any) -> Path:
        order.append(("begin", step))
        entered.set()
        assert release.wait(SECONDS)
        order.append(("end", step))
        return directory

    monkeypatch.setattr(checkpoints, "save", save)
    saver = Saver(tmp_path, keep=2)
    assert not saver.is_busy
    saver.start(Snapshot(state(updates=1), [], ()), META)
    assert entered.wait(SECONDS)
    assert saver.is_busy
    release.set()
    saver.start(Snapshot(state(updates=2), [], ()), META)
    saver.wait()
    assert not saver.is_busy
    assert order == [("begin", 1), ("end", 1), ("begin", 2), ("end", 2)]


def test_a_save_is_due_once_an_interval_and_never_while_one_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([100.0, 109.9, 110.0, 111.0, 125.0, 126.0, 135.9])
    saver = Saver(tmp_path, keep=2, interval_seconds=10.0, clock=lambda: next(times))
    assert [saver.take_turn() for _ in range(3)] == [False, True, False]
    release = threading.Event()
    monkeypatch.setattr(checkpoints, "save", lambda *_, **__: release.wait(SECONDS))
    saver.start(Snapshot(state(updates=1), [], ()), META)
    assert not saver.take_turn()
    release.set()
    saver.wait()
    assert [saver.take_turn() for _ in range(2)] == [True, False]


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
        saver.start(Snapshot(state(), [], ()), META)
        saver.wait()
    assert saver.failure is error
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    saver.start(Snapshot(state(), [], ()), META)
    saver.wait()
    assert saver.failure is None


def test_the_callers_meta_is_not_changed(tmp_path: Path) -> None:
    meta = dict(META)
    saver = Saver(tmp_path, keep=2)
    saver.start(Snapshot(state(), [{}], replay()), meta)
    meta["env_steps"] = -1
    saver.wait()
    found = checkpoints.latest(tmp_path)
    assert found is not None
    assert found.meta == {**META, "replay_indices": [{}]}
    assert "replay_indices" not in meta
