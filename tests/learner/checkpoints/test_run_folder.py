"""The directory of a run: it belongs to one learner, which resumes from what is there."""

import contextlib
import os
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from learner.checkpoints.run_folder import RunFolder
from learner.checkpoints.run_records import FinalScore, read_final_score, write_final_score
from learner.processes.locks import is_locked, lock
from seedrl import checkpoints
from seedrl.agents.r2d2 import R2D2Config
from seedrl.checkpoints import best_directory, best_return
from seedrl.config import Config, EnvironmentConfig
from seedrl.config_io import from_json, to_json
from seedrl.errors import AddressInUseError, CheckpointError
from tests.learner.report.event_files import files_of_at_most

CONFIG = to_json(Config(environment=EnvironmentConfig(id="Some-v0"), agent=R2D2Config()))
META: dict[str, Any] = {
    **{"config": CONFIG, "env_steps": 100, "totals": {"episodes": 3.0}},
    "limiter": {"env_steps": 90, "taken_steps": 80, "applied_steps": 80, "replay_ratio": 1.0},
}


def _save(folder: RunFolder, step: int, meta: dict[str, Any] = META) -> Path:
    return checkpoints.save(folder.checkpoints, step, {"x": np.zeros(1)}, meta, keep=2)


def test_a_second_learner_is_kept_out_until_the_first_is_gone(tmp_path: Path) -> None:
    assert is_locked(tmp_path / "run") is None  # nobody has ever used it
    first = RunFolder(tmp_path / "run")
    assert first.path.stat().st_mode & 0o777 == 0o700
    for use in (RunFolder, lock):
        with pytest.raises(AddressInUseError) as caught:
            use(tmp_path / "run")
        assert f"{tmp_path}/run" in str(caught.value)
    assert is_locked(tmp_path / "run")
    first.close()
    assert is_locked(tmp_path / "run") is False
    held = lock(tmp_path / "run")
    RunFolder(tmp_path / "run", held).close()
    assert is_locked(tmp_path / "run")  # by whoever has taken it
    os.close(held)
    RunFolder(tmp_path / "run").close()


def test_resuming_takes_the_newest_intact_checkpoint_unless_told_never(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert folder.checkpoint("auto") is None
    for has_config in (False, True):  # only with it the command works
        if has_config:
            (tmp_path / "config.json").touch()
        with pytest.raises(CheckpointError) as caught:
            folder.checkpoint("must")
        command = f"seedrl train {tmp_path}/config.json --workdir {tmp_path}"
        assert (command in str(caught.value)) == has_config
    # Without them it would start from other parameters.
    begins = shlex.join(["--init-from", "a coach's run", "--init-from-partial"])
    for line in ("seedrl train x --init-from b", f"seedrl train x {begins} --seed 3"):
        folder.record_command(line)
    with pytest.raises(CheckpointError) as caught:
        folder.checkpoint("must")
    assert str(caught.value).endswith(f"{command} {begins}")
    for step in (3, 7):
        path = _save(folder, step)
    found = [folder.checkpoint(resume) for resume in ("auto", "must", "never")]
    assert [None if item is None else item.step for item in found] == [7, 7, None]
    (path / "meta.json").unlink()
    older = folder.checkpoint("auto")
    assert older is not None and older.step == 3
    assert not path.exists()  # set aside by the run that goes on
    (older.path / "meta.json").unlink()
    assert folder.checkpoint("never") is None
    with pytest.raises(CheckpointError):
        folder.checkpoint("auto")
    assert older.path.exists()  # nothing is set aside if none is intact
    folder.close()


def test_a_damaged_checkpoint_is_not_one_of_those_kept_when_a_run_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = RunFolder(tmp_path)

    def names() -> list[str]:
        return sorted(path.name for path in folder.checkpoints.iterdir())

    _save(folder, 1)
    damaged = _save(folder, 2)
    (damaged / "meta.json").write_text("short")
    found = folder.checkpoint("auto")
    assert found is not None and found.step == 1
    first, second = [record.getMessage() for record in caplog.records]
    _save(folder, 3)
    # Two intact ones, the older of which is there if the newer is damaged too; and the damaged one.
    *intact, aside = names()
    assert intact == ["000000000001", "000000000003"]
    assert aside.startswith("superseded-2-")
    assert f"{damaged}/meta.json" in first and aside in second
    for step in (4, 5):
        _save(folder, step)
    assert names() == ["000000000004", "000000000005", aside]
    folder.close()


def test_a_damaged_checkpoint_gives_way_to_the_one_of_its_step_that_it_replaced(
    tmp_path: Path,
) -> None:
    """Killed before the replaced one was deleted; then the newer one is damaged."""
    folder = RunFolder(tmp_path)
    damaged = _save(folder, 2)
    replaced = shutil.copytree(damaged, f"{damaged}.replaced")
    (damaged / "meta.json").write_text("short")
    found = folder.checkpoint("auto")
    assert found is not None and str(found.path) == replaced
    _save(folder, 3)
    # The one that was damaged counts for nothing, and is still there.
    *kept, aside = sorted(path.name for path in folder.checkpoints.iterdir())
    assert kept == ["000000000002.replaced", "000000000003"] and aside.startswith("superseded-2-")
    folder.close()


def test_another_attempt_keeps_nothing_of_the_one_before(tmp_path: Path) -> None:
    """Also if it is killed before its first save, or saves more updates than that had."""
    folder, config = RunFolder(tmp_path), from_json(CONFIG)
    write_final_score(tmp_path, FinalScore(9.0, 100, 7, 0.0))
    for step in (3, 7):
        _save(folder, step)
    evaluated = {**META, "evaluation": {"mean_return": 9.0}}
    checkpoints.save(best_directory(tmp_path), 3, {"x": np.zeros(1)}, evaluated, keep=1)

    def found() -> list[Any]:
        kept = folder.checkpoint("auto"), folder.best(), read_final_score(tmp_path)
        return [each is not None for each in kept]

    folder.checkpoint("auto")
    folder.record_config(config)
    assert found() == [True] * 3
    folder.checkpoint("never")
    assert found() == [True] * 3  # its configuration may still be refused
    folder.checkpoint("never")
    folder.record_config(config)
    assert found() == [False] * 3
    path = _save(folder, 9)
    assert folder.checkpoint("auto") is not None
    (path / "meta.json").unlink()
    with pytest.raises(CheckpointError):
        folder.checkpoint("auto")
    folder.close()


def test_a_damaged_best_checkpoint_counts_for_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with contextlib.closing(RunFolder(tmp_path)) as folder:
        evaluated = {"evaluation": {"mean_return": 7.5, "episodes": 20}}
        path = checkpoints.save(best_directory(tmp_path), 3, {"x": np.zeros(2)}, evaluated, keep=1)
        best = folder.best()
        assert best is not None and best_return(best) == 7.5
        (path / "meta.json").write_text("{}")
        assert folder.best() is None
    assert "no best checkpoint until the next score" in caplog.text


def test_no_two_sessions_have_one_number_also_after_a_full_disk(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    numbers = [folder.record_command("seedrl train a")]
    with files_of_at_most(20), pytest.raises(OSError) as caught:  # it is full in mid-line
        folder.record_command("seedrl train b")
    assert "command.txt" in str(caught.value)
    numbers += [folder.record_command(f"seedrl train {name}") for name in "cd"]
    assert numbers == [1, 3, 4]
    lines = (tmp_path / "command.txt").read_text().splitlines()
    assert lines == ["seedrl train a", "seedr", "seedrl train c", "seedrl train d"]
    folder.close()


def test_another_attempt_renames_no_checkpoint_of_another_run(tmp_path: Path) -> None:
    """A run's directory may be anybody's, and its checkpoints a link."""
    other, folder = RunFolder(tmp_path / "other"), RunFolder(tmp_path / "run")
    path = _save(other, 3)
    folder.checkpoints.symlink_to(other.checkpoints)
    folder.checkpoint("never")
    with pytest.raises(CheckpointError) as caught:
        folder.record_config(from_json(CONFIG))
    assert str(folder.checkpoints) in str(caught.value) and path.exists()
    for each in (folder, other):
        each.close()


def test_a_run_does_not_go_on_from_records_that_cannot_be_those_of_a_run(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for step, change in enumerate(
        (
            {"limiter": {"env_steps": 10**15}},
            {"limiter": {"env_steps": "many"}},
            {"totals": {"episodes": None}},
        )
    ):
        _save(folder, step, {**META, **change})
        with pytest.raises(CheckpointError) as caught:
            folder.checkpoint("auto")
        assert "\n" not in str(caught.value)
    folder.close()
