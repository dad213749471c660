"""`seedrl runs` on folders that are given."""

import json
from pathlib import Path

import pytest

from learner.checkpoints.run_records import RunRecord
from learner.cli.main import main
from learner.cli.runs import table

RECORDS = [
    RunRecord(
        Path("runs/one"), "cartpole_r2d2", 0, "finished", "target 475 confirmed", 123_456, 500.0,
        500.0, 2.0,
    ),
    RunRecord(Path("runs/sweep/2"), "own", None, "failed", "an error", 0, None, -20.125, 1.0),
]  # fmt: skip


def test_a_run_is_a_line_of_a_table() -> None:
    lines = [
        "run      config         seed  state       steps  last    best  why",
        "one      cartpole_r2d2     0  finished  123,456   500     500  target 475 confirmed",
        "sweep/2  own               –  failed          0     –  -20.12  an error",
    ]
    assert table(RECORDS, Path("runs")) == lines


def test_a_folder_is_listed_as_text_or_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["runs", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"no runs in {tmp_path}\n"
    folder = tmp_path / "one"
    folder.mkdir()
    (folder / "command.txt").touch()
    assert main(["runs", str(tmp_path), "--json"]) == 0
    line = json.loads(capsys.readouterr().out)
    assert (line["folder"], line["state"], line["best"]) == (str(folder), "interrupted", None)


def test_what_is_no_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", str(tmp_path / "none")]) == 2
    assert "expected a folder with runs" in capsys.readouterr().err
