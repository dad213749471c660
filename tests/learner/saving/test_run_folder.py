import errno
import fcntl
import shlex
from pathlib import Path

import numpy as np
import pytest

from learner.saving.folder_lock import remove_refused
from learner.saving.run_folder import RunFolder
from seedrl import checkpoints
from seedrl.agents.r2d2 import R2D2Config
from seedrl.config import Config, EnvironmentConfig
from seedrl.config_json import from_json, to_json
from seedrl.errors import AddressInUseError, CheckpointError, ConfigError, UserError

CONFIG = to_json(Config(environment=EnvironmentConfig(id="Some-v0"), agent=R2D2Config()))
META = {"config": CONFIG}


def test_a_second_learner_is_kept_out_until_the_first_is_gone(tmp_path: Path) -> None:
    first = RunFolder(tmp_path / "run")
    with pytest.raises(AddressInUseError, match=f"another learner is using {tmp_path}/run; stop"):
        RunFolder(tmp_path / "run")
    first.close()
    RunFolder(tmp_path / "run").close()


def test_a_folder_is_made_with_its_parents_and_known_by_its_absolute_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = RunFolder(Path("runs/first"))
    folder.close()
    assert folder.path == tmp_path / "runs" / "first"
    assert folder.path.is_dir()
    assert folder.checkpoints == folder.path / "checkpoints"
    assert folder.metrics == folder.path / "metrics.jsonl"
    beside = RunFolder(Path("runs/../runs/first/../second"))
    beside.close()
    assert beside.path == tmp_path / "runs" / "second"


def test_resuming_takes_the_newest_checkpoint_unless_told_never(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for step in (3, 7):
        checkpoints.save(folder.checkpoints, step, {"x": np.zeros(1)}, META, keep=2)
    found = [folder.checkpoint(resume) for resume in ("auto", "must", "never")]
    folder.close()
    assert [None if item is None else item.step for item in found] == [7, 7, None]


def test_a_checkpoint_of_an_earlier_version_is_refused_in_one_line(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    old = {"config": CONFIG.replace('"regime": "asynchronous"', '"lock_step": false')}
    assert old != META
    checkpoints.save(folder.checkpoints, 3, {"x": np.zeros(1)}, old, keep=2)
    with pytest.raises(ConfigError, match=r"learning\.lock_step is now .* start a new workdir$"):
        folder.checkpoint("auto")
    folder.close()


def test_a_damaged_checkpoint_is_set_aside_by_the_run_that_goes_on(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for step in (3, 7):
        path = checkpoints.save(folder.checkpoints, step, {"x": np.zeros(1)}, META, keep=2)
    (path / "meta.json").unlink()
    found = folder.checkpoint("auto")
    folder.close()
    assert found is not None and found.step == 3
    assert not path.exists()


def test_without_a_checkpoint_auto_starts_anew_and_must_refuses(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert folder.checkpoint("auto") is None
    assert folder.checkpoint("never") is None
    match = f"--resume must: expected a checkpoint in {tmp_path}/checkpoints, found none; check"
    with pytest.raises(CheckpointError, match=match):
        folder.checkpoint("must")
    folder.close()


def test_the_config_is_the_last_one_and_all_command_lines_are_kept(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    environment = EnvironmentConfig(id="CartPole-v1")
    commands = [["python", "-m", "learner", "a b"], ["seedrl", "train", "x;y"]]
    for seed, command in enumerate(commands):
        config = Config(environment=environment, agent=R2D2Config(), seed=seed)
        folder.record_config(config)
        assert folder.record_command(shlex.join(command)) == seed + 1
    folder.close()
    assert from_json((tmp_path / "config.json").read_text()) == config
    lines = (tmp_path / "command.txt").read_text().splitlines()
    assert [shlex.split(line) for line in lines] == commands


def _refuse(folder: RunFolder) -> None:
    with pytest.raises(UserError), folder.unchanged_until_begun():
        for name in ("config.json", "status.json"):
            (folder.path / name).write_text("mine")
        folder.record_command("mine")
        raise UserError("no")
    folder.close()


def test_a_folder_that_was_made_for_a_refused_run_is_removed(tmp_path: Path) -> None:
    _refuse(RunFolder(tmp_path / "run"))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_was_made_for_a_run_which_is_stopped_early_is_removed(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    with folder.unchanged_until_begun():
        folder.record_command("mine")
    folder.close()
    assert list(tmp_path.iterdir()) == []


def test_what_a_user_put_into_the_folder_of_a_refused_run_stays(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    (folder.path / "notes.txt").touch()
    _refuse(folder)
    assert [path.name for path in folder.path.iterdir()] == ["notes.txt"]


def test_a_refused_run_leaves_what_was_said_of_the_one_before(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert folder.record_command("first") == 1
    (tmp_path / "status.json").write_text("finished")
    _refuse(folder)
    assert (tmp_path / "status.json").read_text() == "finished"
    assert not (tmp_path / "config.json").exists()  # it was never a run of that configuration
    folder = RunFolder(tmp_path)
    assert folder.record_command("second") == 2  # the seeds of environments depend on it
    folder.close()


def test_a_refused_run_that_begins_again_leaves_the_rounds_of_the_one_before(
    tmp_path: Path,
) -> None:
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text('{"kind": "evaluation"}\n{"ki')  # a killed process left half a line
    before = metrics.read_bytes()
    folder = RunFolder(tmp_path)
    with pytest.raises(UserError), folder.unchanged_until_begun():
        with metrics.open("a") as file:
            file.write('\n{"kind": "session", "is_begun_anew": true}\n')
        raise UserError("no")
    assert metrics.read_bytes() == before
    with folder.unchanged_until_begun():
        metrics.write_text("longer than it was before, by a session that has begun\n" * 2)
        folder.has_begun = True
    assert len(metrics.read_text().splitlines()) == 2
    folder.close()


def test_what_a_refused_run_did_not_change_is_not_written_again(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    (tmp_path / "config.json").write_text("as before")
    before = (tmp_path / "config.json").stat()
    with folder.unchanged_until_begun():
        pass
    assert (tmp_path / "config.json").stat() == before
    folder.close()


def test_a_disk_that_refuses_the_config_keeps_the_one_that_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(path: Path, content: bytes) -> int:
        path.open("wb").close()  # the file is there by then, and empty
        raise OSError(errno.ENOSPC, "No space left on device")

    config = Config(environment=EnvironmentConfig(id="Some-v0"), agent=R2D2Config())
    folder = RunFolder(tmp_path)
    (tmp_path / "config.json").write_text("as before")
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space"), folder.unchanged_until_begun():
        (tmp_path / "command.txt").touch()
        folder.record_config(config)
    assert (tmp_path / "config.json").read_text() == "as before"
    (tmp_path / "status.json").write_text("finished")
    with folder.unchanged_until_begun():
        (tmp_path / "status.json").write_text("mine")
    assert "status.json could not be put back as it was: No space left" in caplog.text
    assert (tmp_path / "status.json").read_text() == "mine"
    folder.close()
    assert {path.name for path in tmp_path.iterdir()} == {".lock", "config.json", "status.json"}


def test_a_config_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "config.json").mkdir()
    folder = RunFolder(tmp_path)
    with pytest.raises(ConfigError, match="cannot read .*config.json .*; choose another folder"):
        folder.unchanged_until_begun().__enter__()
    folder.close()


def _make_refused(path: Path) -> None:
    """A folder as `seedrl train` leaves it whose learner was refused."""
    for name in ("logs", "tb", "wandb"):
        (path / name).mkdir(parents=True)
        (path / name / "file").touch()
    files = ("command.txt", "events.jsonl", "status.json", "metrics.jsonl")
    for name in (*files, "recording", "wandb_id.txt"):
        (path / name).touch()


def test_what_seedrl_train_made_for_a_refused_run_is_removed(tmp_path: Path) -> None:
    _make_refused(tmp_path / "run")
    remove_refused(tmp_path / "run")
    assert list(tmp_path.iterdir()) == []
    remove_refused(tmp_path / "run")  # another one was faster
    assert list(tmp_path.iterdir()) == []


def test_nothing_of_a_run_that_lives_or_has_begun_is_removed(tmp_path: Path) -> None:
    _make_refused(tmp_path / "run")
    live = RunFolder(tmp_path / "run")
    everything = sorted(tmp_path.rglob("*"))
    remove_refused(tmp_path / "run")
    assert sorted(tmp_path.rglob("*")) == everything
    (tmp_path / "run" / "config.json").touch()
    live.close()
    remove_refused(tmp_path / "run")
    assert sorted(tmp_path.rglob("*")) == sorted([*everything, tmp_path / "run" / "config.json"])


def test_a_lock_that_is_removed_while_it_is_taken_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = fcntl.flock

    def removed_before(descriptor: int, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", take)
        (tmp_path / ".lock").unlink()
        take(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", removed_before)
    first = RunFolder(tmp_path)
    with pytest.raises(AddressInUseError):
        RunFolder(tmp_path)
    first.close()


def test_a_run_that_has_begun_keeps_what_it_says(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.has_begun = True
    _refuse(folder)
    assert (folder.path / "status.json").read_text() == "mine"
    assert (folder.path / "config.json").read_text() == "mine"
