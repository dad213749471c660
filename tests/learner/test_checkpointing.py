"""Saves: when, of what, in the background one at a time, none forgotten."""

import dataclasses
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from learner.acting.evaluator import Episode, Score
from learner.checkpointing import Checkpointer
from learner.runtime.channel import VersionedParams
from learner.runtime.watchdog import Watchdog
from seedrl import checkpoints, stored_arrays
from seedrl.config import CheckpointConfig, Config, LoggingConfig
from seedrl.errors import CheckpointError
from seedrl.fields import with_fields
from tests.learner.checkpoints.snapshots import CONFIG, checkpointer
from tests.learner.report.listener import Heard
from tests.patience import SECONDS, wait_until


def config_of(*, interval_seconds: float = 300.0, stuck_seconds: float = 600.0) -> Config:
    return dataclasses.replace(
        CONFIG,
        checkpoint=CheckpointConfig(interval_seconds=interval_seconds),
        logging=LoggingConfig(stuck_seconds=stuck_seconds),
    )


def _scored(mean: float, version: int) -> Score:
    params = {"core": np.full(2, mean, np.float32)}
    return Score(VersionedParams(params, version), (Episode(mean),))


def _goes_on(saving: Checkpointer, updates: int, score: Score | None = None) -> None:
    """The session is at this update, and its last save has ended."""
    session: Any = saving._session
    session.learning.updates, session.acting.best_score = updates, score
    saving.save_the_end()
    saving.wait()


def test_a_save_that_hangs_is_one_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release, heard = threading.Event(), Heard()
    monkeypatch.setattr(checkpoints, "save", lambda *_, **__: release.wait(SECONDS))
    # Its own thread would do that several times a second.
    watchdog = Watchdog(lambda _: None, clock=iter(np.arange(0.0, 100.0, 0.5)).__next__)
    config = config_of(stuck_seconds=5.0)
    saving = checkpointer(tmp_path, config=config, listener=heard, watchdog=watchdog)
    saving.save_the_end()
    wait_until(lambda: saving._heartbeat.piece)
    for _ in range(20):
        watchdog.look()
    (event,) = heard.take()
    assert event.kind == "save_failed"
    assert str(tmp_path) in event.text
    release.set()
    saving.wait()
    for _ in range(20):
        watchdog.look()
    assert [event.kind for event in heard.take()] == ["saved"]


def test_no_save_starts_while_one_is_written_or_if_nothing_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, steps = threading.Event(), list[int]()

    def save(_: Path, step: int, *__: Any, **___: Any) -> None:
        steps.append(step)
        release.wait(SECONDS)

    monkeypatch.setattr(checkpoints, "save", save)
    saving = checkpointer(tmp_path)
    monkeypatch.setattr(saving, "is_due", lambda: True)
    session: Any = saving._session
    for session.learning.updates in (1, 2):
        saving.save_what_is_due()  # the second time the first is under way
    release.set()
    saving.wait()
    for _ in range(2):
        saving.save_what_is_due()
        saving.wait()
    assert steps == [1, 2]


@pytest.mark.parametrize(
    ("interval_seconds", "due_at"), [(300.0, [47.0, 347.0]), (20.0, [20.0, 40.0, 60.0])]
)
def test_a_first_save_follows_the_first_update_and_then_the_interval_counts(
    tmp_path: Path, interval_seconds: float, due_at: list[float]
) -> None:
    now = 0.0
    config = config_of(interval_seconds=interval_seconds)
    saving = checkpointer(tmp_path, config=config, clock=lambda: now)
    session: Any = saving._session
    due = []
    while len(due) < len(due_at):
        session.learning.num_applied = int(now >= 17.0)
        if saving.is_due():
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
    saving = checkpointer(tmp_path, listener=heard)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "save", fail)
        _goes_on(saving, 5)
    assert saving.failure is error
    # What is a defect of ours is logged with its traceback.
    assert [event.kind for event in heard.take()] == ["save_failed"]
    assert len(caplog.records) == tracebacks
    _goes_on(saving, 5)
    assert saving.failure is None
    assert [event.kind for event in heard.take()] == ["saved"]


def test_a_save_that_fails_while_the_run_ends_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends, save, wait = threading.Event(), checkpoints.save, Checkpointer.wait

    def fail_once(*_: Any, **__: Any) -> None:
        monkeypatch.setattr(checkpoints, "save", save)
        ends.wait(SECONDS)
        raise CheckpointError("disk full")

    def wait_at_the_end(self: Checkpointer) -> None:
        ends.set()
        wait(self)

    monkeypatch.setattr(checkpoints, "save", fail_once)
    saving = checkpointer(tmp_path)
    monkeypatch.setattr(saving, "is_due", lambda: True)
    saving.save_what_is_due()
    monkeypatch.setattr(Checkpointer, "wait", wait_at_the_end)
    saving.save_the_end()
    saving.wait()
    assert saving.failure is None
    assert checkpoints.choose(tmp_path).step == 5


def test_a_checkpoint_has_the_counts_of_the_moment_when_its_state_was_copied(
    tmp_path: Path,
) -> None:
    saving = checkpointer(tmp_path)
    session: Any = saving._session
    session.acting.training_steps = 99  # of which the copied arrays know nothing
    _goes_on(saving, 5)
    meta = checkpoints.choose(tmp_path).meta
    assert (meta["env_steps"], meta["limiter"]) == (12, {"taken_steps": 12})


def test_only_what_scored_higher_replaces_the_best_checkpoint(tmp_path: Path) -> None:
    saving = checkpointer(tmp_path)
    for updates, mean in ((1, 4.0), (2, 3.0), (3, 5.0), (4, 5.0), (5, 4.5)):
        _goes_on(saving, updates, _scored(mean, updates))
        assert saving.failure is None
    found = checkpoints.choose(tmp_path, is_best=True)
    assert (found.step, checkpoints.best_return(found)) == (3, 5.0)
    restored = stored_arrays.read_tree(found.path, {"params": {"core": np.zeros(2, np.float32)}})
    assert restored["params"]["core"].tolist() == [5.0, 5.0]
    assert checkpoints.choose(tmp_path).step == 5  # the newest is another
    # Of a run that is resumed, but for scores of another environment.
    for arguments, expected in (("{}", 5.0), ('{"gravity": 20}', 1.0)):
        config = with_fields(CONFIG, {"environment.arguments": arguments})
        _goes_on(checkpointer(tmp_path, config=config), 6, _scored(1.0, 6))
        assert checkpoints.best_return(checkpoints.choose(tmp_path, is_best=True)) == expected


def test_what_scored_highest_is_saved_even_if_the_state_is_not_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saving, best = checkpointer(tmp_path), _scored(5.0, 9)
    save = checkpoints.save
    for fails, holds in (("best", ["000000000009"]), ("checkpoints", ["best"])):
        with monkeypatch.context() as patch:

            def refuse(directory: Path, *args: Any, fails: str = fails, **kwargs: Any) -> Path:
                if directory.name == fails:
                    raise CheckpointError("disk full")
                return save(directory, *args, **kwargs)

            patch.setattr(checkpoints, "save", refuse)
            _goes_on(saving, 9, best)
        assert isinstance(saving.failure, CheckpointError)
        assert set(holds) <= {path.name for path in (tmp_path / "checkpoints").iterdir()}
    _goes_on(saving, 10, best)
    assert saving.failure is None
    assert checkpoints.choose(tmp_path, is_best=True).step == 9


def test_a_best_score_that_is_all_that_is_new_is_saved_at_the_end(tmp_path: Path) -> None:
    heard = Heard()
    saving = checkpointer(tmp_path, listener=heard)
    saving.is_due = lambda: True  # type: ignore[method-assign]
    saving.save_what_is_due()
    _goes_on(saving, 5)
    assert [event.kind for event in heard.take()] == ["saved"]  # nothing was new at the end
    _goes_on(saving, 5, _scored(5.0, 5))
    assert [event.kind for event in heard.take()] == ["saved"]
    assert checkpoints.choose(tmp_path, is_best=True).step == 5
