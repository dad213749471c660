"""The command `seedrl bench`: what it runs, prints and writes."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from learner.cli import bench
from learner.cli.main import main
from learner.extras.bench.measuring import Pace, Result


def run(pace: Pace) -> Iterator[Result]:
    """Stands in for a benchmark: this module is imported as one."""
    yield Result(
        name="a figure",
        unit="steps/s",
        limit_name="a limit",
        ours=(1.0, 3.0, 2.0),
        limits=(4.0, 4.0, 4.0),
        conditions={"rounds": str(pace.rounds)},
    )


def test_named_benchmarks_are_printed_and_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "PACKAGE", __package__)
    monkeypatch.setattr(bench, "BENCHMARKS", {"test_bench": "a figure"})
    file = tmp_path / "bench.json"
    flags = ["--seconds", "0.5", "--rounds", "3", "--output", str(file)]
    assert main(["bench", "test_bench", *flags]) == 0
    out = capsys.readouterr().out
    assert "0.50" in out and "(0.25..0.75)" in out and "rounds 3" in out
    document = json.loads(file.read_text())
    assert [row["name"] for row in document["rows"]] == ["a figure"]
    assert document["pace"] == {"rounds": 3, "seconds": 0.5}
    machine = document["machine"]
    assert machine["cores"] >= 1 and machine["versions"]["jax"] and machine["devices"]
