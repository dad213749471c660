"""`seedrl digest` of checkpoints that were saved here."""

from pathlib import Path

import numpy as np
import pytest

from learner.checkpoints.digest import digests, stored
from learner.cli.main import main
from seedrl import checkpoints


def test_a_checkpoint_is_digested_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree = {"params": {"core": {"bias": np.zeros((3, 1))}}, "target": (), "updates": np.int32(3)}
    extra = {"replay.mass": np.ones(4, np.float32)}
    path = checkpoints.save(tmp_path / "checkpoints", 3, tree, {}, keep=2, extra=extra)
    found = checkpoints.latest(tmp_path / "checkpoints")
    assert found is not None
    arrays = stored(found)
    assert set(arrays) == {"params/core/bias", "updates", "replay.mass"}
    assert main(["digest", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == str(path)
    assert [tuple(line.split()) for line in lines[1:]] == list(digests(arrays).items())


def test_a_folder_without_checkpoint_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["digest", str(tmp_path)]) == 74
    assert "expected a checkpoint in" in capsys.readouterr().err
