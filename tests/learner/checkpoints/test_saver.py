"""Saves in the background: one at a time, none forgotten."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from learner.checkpoints.saver import Best, Saver
from learner.learning.loop import Snapshot
from learner.runtime.watchdog import Watchdog
from seedrl import checkpoints, stored_arrays
from seedrl.errors import CheckpointError
from tests.learner.checkpoints.snapshots import META, state
from tests.learner.report.listener import Heard
from tests.patience import SECONDS, wait_until


def test_a_save_that_hangs_is_one_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release, heard = threading.Event(), Heard()
    monkeypatch.setattr(checkpoints, "save", lambda *_, **__: release.wait(SECONDS))
    saver = Saver(tmp_path, keep=2, listener=heard)
    # Its own thread would do that several times a second.
    watchdog = Watchdog(lambda _: None, clock=iter(np.arange(0.0, 100.0, 0.5)).__next__)
    watchdog.watch(saver.heartbeat, 5.0, saver.report_hang)
    saver.start(Snapshot(state(), [], (), 12, {}), META)
    wait_until(lambda: saver.heartbeat.piece)
    for _ in range(20):
        watchdog.look()
    (event,) = heard.take()
    assert event.kind == "save_failed"
    assert str(tmp_path) in event.text
    release.set()
    saver.wait()
    for _ in range(20):
        watchdog.look()
    assert [event.kind for event in heard.take()] == ["saved"]


def test_a_save_is_due_once_an_interval_and_never_while_one_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([100.0, 109.9, 110.0, 111.0, 125.0, 126.0, 135.9])
    saver = Saver(tmp_path, keep=2, interval_seconds=10.0, clock=lambda: next(times))
    assert [saver.take_turn() for _ in range(3)] == [False, True, False]
    release = threading.Event()
    monkeypatch.setattr(checkpoints, "save", lambda *_, **__: release.wait(SECONDS))
    saver.start(Snapshot(state(updates=1), [], (), 12, {}), META)
    assert not saver.take_turn()
    release.set()
    saver.wait()
    assert [saver.take_turn() for _ in range(2)] == [True, False]


@pytest.mark.parametrize(
    ("interval_seconds", "due_at"), [(300.0, [47.0, 347.0]), (20.0, [20.0, 40.0, 60.0])]
)
def test_a_first_save_follows_the_first_update_and_then_the_interval_counts(
    tmp_path: Path, interval_seconds: float, due_at: list[float]
) -> None:
    now = 0.0
    saver = Saver(tmp_path, 2, interval_seconds, first_seconds=30.0, clock=lambda: now)
    due = []
    while len(due) < len(due_at):
        if saver.take_turn(has_learned=now >= 17.0):
            due.append(now)
        now += 1.0
    assert due == due_at


@pytest.mark.parametrize(
    ("error", "tracebacks"), [(CheckpointError("disk full"), 0), (TypeError("defect"), 1)]
)
def test_a_failed_save_is_kept_until_one_succeeds(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    tracebacks: int,
) -> None:
    def fail(*_: Any, **__: Any) -> Path:
        raise error

    heard = Heard()
    saver = Saver(tmp_path, keep=2, listener=heard)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "save", fail)
        saver.start(Snapshot(state(), [], (), 12, {}), META)
        saver.wait()
    assert saver.failure is error
    # What is a defect of ours is logged with its traceback.
    assert [event.kind for event in heard.take()] == ["save_failed"]
    assert len(caplog.records) == tracebacks
    saver.start(Snapshot(state(), [], (), 12, {}), META)
    saver.wait()
    assert saver.failure is None
    assert [event.kind for event in heard.take()] == ["saved"]


def test_only_what_scored_higher_replaces_the_best_checkpoint(tmp_path: Path) -> None:
    saver = Saver(tmp_path, keep=2, best_return=4.0)
    for updates, score in ((1, 3.0), (2, 5.0), (3, 5.0), (4, 4.5)):
        params = {"core": np.full(2, score, np.float32)}
        best = Best(score, updates, params, {"evaluation": {"mean_return": score}})
        saver.start(Snapshot(state(updates=updates), [], (), 12, {}), META, best)
        saver.wait()
        assert saver.failure is None
    found = checkpoints.choose(tmp_path, is_best=True)
    assert (found.step, checkpoints.best_return(found)) == (2, 5.0)
    restored = stored_arrays.read_tree(found.path, {"params": {"core": np.zeros(2, np.float32)}})
    assert restored["params"]["core"].tolist() == [5.0, 5.0]
    assert checkpoints.choose(tmp_path).step == 4  # the newest is another


def test_what_scored_highest_is_saved_even_if_the_state_is_not_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saver = Saver(tmp_path, keep=2, best_return=4.0)
    meta = {"evaluation": {"mean_return": 5.0}}
    best = Best(5.0, 9, {"core": np.zeros(2, np.float32)}, meta)
    snapshot = Snapshot(state(updates=9), [], (), 12, {})
    save = checkpoints.save
    for fails, holds in (("best", ["000000000009"]), ("checkpoints", ["best"])):
        with monkeypatch.context() as patch:

            def refuse(directory: Path, *args: Any, fails: str = fails, **kwargs: Any) -> Path:
                if directory.name == fails:
                    raise CheckpointError("disk full")
                return save(directory, *args, **kwargs)

            patch.setattr(checkpoints, "save", refuse)
            saver.start(snapshot, META, best)
            saver.wait()
        assert isinstance(saver.failure, CheckpointError)
        assert set(holds) <= {path.name for path in (tmp_path / "checkpoints").iterdir()}
    saver.start(snapshot._replace(state=state(updates=10)), META, best)
    saver.wait()
    assert saver.failure is None
    assert checkpoints.choose(tmp_path, is_best=True).step == 9
