"""`seedrl runs`, `checkpoints`, `digest` and `export` on folders that are given."""

import json
from collections.abc import Collection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from learner.checkpoints.restoring import digests
from learner.cli.main import main
from seedrl import checkpoints, policy
from seedrl.stored_arrays import read_all


def test_runs_are_listed_as_text_or_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "one"
    folder.mkdir()
    (folder / "command.txt").touch()
    assert main(["runs", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:3] == ["one", "–", "–"]
    assert main(["runs", str(tmp_path), "--json"]) == 0
    (line,) = json.loads(capsys.readouterr().out)["runs"]
    assert (line["folder"], line["state"], line["best"]) == (str(folder), "interrupted", None)


def test_checkpoints_are_listed_and_verified(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    intact, newer = (
        checkpoints.save(tmp_path / "checkpoints", step, {"x": np.arange(3)}, {}, keep=5)
        for step in (1, 2)
    )
    assert main(["checkpoints", str(tmp_path)]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == f"checkpoint  update 1, 0.0 MiB, {intact}: intact"
    assert second.endswith(f"{newer}: intact")
    (newer / "meta.json").unlink()
    assert main(["checkpoints", str(tmp_path)]) == 74
    first, second = capsys.readouterr().out.splitlines()
    assert first.endswith("intact") and "update 2" in second and "meta.json" in second


def test_checkpoints_that_a_learner_replaces_meanwhile_are_no_damage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    best, verified = checkpoints.best_directory(tmp_path), checkpoints.verified

    def replaced_before(path: Path, parts: Collection[str] = ()) -> checkpoints.Checkpoint:
        if path.name < "000000000003":  # the next one deletes it
            checkpoints.save(best, int(path.name) + 1, {}, {}, keep=1)
        return verified(path, parts)

    checkpoints.save(best, 1, {}, {}, keep=1)
    monkeypatch.setattr(checkpoints, "verified", replaced_before)
    assert main(["checkpoints", str(tmp_path)]) == 0
    assert capsys.readouterr().out == ""
    assert checkpoints.read(tmp_path, lambda found: found.step, is_best=True) == 3


def test_a_checkpoint_is_digested_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree = {"params": {"core": {"bias": np.zeros((3, 1))}}, "target": (), "updates": np.int32(3)}
    tree["replay"] = {"sampling_weight": np.ones(4, np.float32)}
    path = checkpoints.save(tmp_path / "checkpoints", 3, tree, {}, keep=2)
    found = checkpoints.latest(tmp_path / "checkpoints")
    assert found is not None
    arrays = read_all(found.path)
    assert set(arrays) == {"params/core/bias", "updates", "replay.sampling_weight"}
    assert main(["digest", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == str(path)
    assert [tuple(line.split()) for line in lines[1:]] == list(digests(arrays).items())


def test_a_policy_is_written_to_the_folder_of_the_run_unless_told_otherwise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[Any] = []

    def load(workdir: Path, **which: Any) -> Any:
        loads.append((workdir, which["best"]))
        return SimpleNamespace(export=lambda: b"12345", step=1234)

    monkeypatch.setattr(policy, "load", load)
    assert main(["export", str(tmp_path)]) == 0
    assert (tmp_path / "policy.jax").read_bytes() == b"12345"
    assert capsys.readouterr().out == f"{tmp_path}/policy.jax: 5 bytes, after 1,234 updates\n"
    other = tmp_path / "other"
    other.write_bytes(b"before")
    words = ["export", str(tmp_path), "--output", str(other), "--best"]
    assert main(words) == 2 and other.read_bytes() == b"before"
    assert "--force" in capsys.readouterr().err
    assert main([*words, "--force"]) == 0
    assert other.read_bytes() == b"12345"
    assert loads == [(tmp_path, False), (tmp_path, True)]
    capsys.readouterr()
    assert main(["export", str(tmp_path), "--output", "no/such/folder/x"]) == 2
    assert "no/such/folder/x" in capsys.readouterr().err
