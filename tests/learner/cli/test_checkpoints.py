"""`seedrl checkpoints` on a folder that is given."""

import json
from pathlib import Path

import numpy as np
import pytest

from learner.cli.main import main
from seedrl import checkpoints


def save(workdir: Path, step: int) -> Path:
    extra = {"replay": np.arange(3)}
    return checkpoints.save(workdir / "checkpoints", step, {}, {}, keep=5, extra=extra)


def test_checkpoints_are_listed_and_verified(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    intact, newer = save(tmp_path, 1), save(tmp_path, 2)
    assert main(["checkpoints", str(tmp_path)]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == f"checkpoint  update 1, 0.0 MiB, {intact}: intact"
    assert second.endswith(f"{newer}: intact")
    (newer / "meta.json").unlink()
    assert main(["checkpoints", str(tmp_path), "--json"]) == 74
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["step"], bool(line["problem"])) for line in shown] == [(1, False), (2, True)]
