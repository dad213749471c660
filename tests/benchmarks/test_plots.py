"""Plots of growth: every figure has one, from its smallest size on."""

import json
import sys
from pathlib import Path

import pytest

from learner.bench.measure import report
from learner.bench.measure.interleave import Pace
from learner.bench.measure.result import Conditions
from tests.benchmarks import plots
from tests.benchmarks.growth_axis import Axis, results


def test_every_figure_becomes_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    costs = {4: (2.0,), 1: (1.0,), 1_000: (3.0,)}
    both = [
        result
        for name in ("env servers", "memory of devices, bytes")
        for result in results(Axis(name, "µs", Conditions()), costs)
    ]
    document = report.to_json(both[::-1], {}, Pace(1, 0.1))
    sizes = {
        name: [row["details"]["size"] for row in found]
        for name, found in plots.figures(document).items()
    }
    assert sizes == {"env servers": [4, 1_000], "memory of devices, bytes": [4, 1_000]}
    source = tmp_path / "bench.json"
    source.write_text(json.dumps(document))
    monkeypatch.setattr(sys, "argv", ["plots", str(source), str(tmp_path)])
    plots.main()
    written = sorted(path.name for path in tmp_path.glob("*.svg"))
    assert written == ["growth_env_servers.svg", "growth_memory_of_devices_bytes.svg"]
