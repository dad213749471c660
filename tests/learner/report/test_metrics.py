import json
import math
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from learner.report.metrics import Metrics
from tests.learner.report.event_files import files_of_at_most, scalars


class _Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def _lines(workdir: Path) -> list[dict[str, Any]]:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not strict JSON")

    text = (workdir / "metrics.jsonl").read_text()
    return [json.loads(line, parse_constant=refuse) for line in text.splitlines() if line]


def test_what_a_thread_tallies_is_taken_once_at_each_report(tmp_path: Path) -> None:
    clock = _Clock()
    metrics = Metrics(tmp_path, clock=clock)
    tally = metrics.tally()
    tally.counted["frames"] += 8
    tally.spent["acting_waits"] += 0.5
    for value in (1.0, 2.0, 6.0):
        tally.measured["queue_wait_ms"].append(value)
    for value, length in ((10.0, 100), (20.0, 200)):
        tally.counted["episodes/training"] += 1
        tally.measured["return/training"].append(value)
        tally.measured["length/training"].append(length)
    tally.measured["loss"].append(1.0)
    clock.now += 2.0
    first = metrics.flush(env_steps=0, updates=0)
    assert (first["frames"], first["frames_per_second"]) == (8.0, 4.0)
    assert (first["queue_wait_ms"], first["queue_wait_ms_p50"]) == (3.0, 2.0)
    assert (first["acting_waits_share"], first["length/training"]) == (0.25, 150.0)
    extremes = ("return/training", "return/training_min", "return/training_max")
    assert [first[name] for name in extremes] == [15.0, 10.0, 20.0]
    assert first["loss"] == 1.0 and "loss_p50" not in first  # percentiles are for a few names
    tally.counted["frames"] += 4
    assert metrics.totals()["frames"] == 12.0
    clock.now += 2.0
    second = metrics.flush(env_steps=0, updates=0)
    assert (second["frames"], second["frames_per_second"]) == (12.0, 2.0)
    assert (second["acting_waits_share"], second["episodes/training"]) == (0.0, 2.0)
    assert "episodes/training_per_second" not in second  # the table calls it a gauge
    assert "queue_wait_ms" not in second and "return/training" not in second
    metrics.close()


def test_what_is_not_finite_is_written_as_null(tmp_path: Path) -> None:
    clock = _Clock()
    metrics = Metrics(tmp_path, clock=clock)
    metrics.gauge("loss", math.nan)
    metrics.tally().measured["inference_ms"].append(math.inf)
    metrics.tally().measured["self"].append(1.0)  # an agent's metric may have any name
    clock.now += 1.0
    values = metrics.flush(env_steps=0, updates=0)
    assert math.isnan(values["loss"])
    metrics.gauge("loss", 2.0)
    metrics.flush(env_steps=30, updates=4)
    metrics.record("evaluation", returns=[1.0, math.nan], best=np.float32(-np.inf))
    metrics.close()
    line, _, event = _lines(tmp_path)
    assert (line["loss"], line["inference_ms"], line["inference_ms_p50"]) == (None, None, None)
    assert (event["returns"], event["best"]) == ([1.0, None], None)
    # TensorBoard gets every finite value, by group.
    (events,) = (tmp_path / "tb").iterdir()
    (_, first), (step, second) = scalars(events)
    assert "learning/loss" not in first
    assert step == 30 and second["learning/loss"] == 2.0 and second["balance/updates"] == 4.0


@pytest.mark.parametrize("left", ["", '{"kind": "old"}\n', '{"kind": "old"}\n{"kind": "torn'])
def test_a_resumed_run_appends_even_below_half_a_line(tmp_path: Path, left: str) -> None:
    (tmp_path / "metrics.jsonl").write_text(left)
    metrics = Metrics(tmp_path)
    metrics.record("new")
    metrics.close()
    text = (tmp_path / "metrics.jsonl").read_text()
    assert text.startswith(left)
    *before, last = text.splitlines()
    assert json.loads(last)["kind"] == "new"
    assert before == left.splitlines()


def test_a_disk_that_takes_nothing_costs_a_warning_and_never_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = Metrics(tmp_path)
    (events,) = (tmp_path / "tb").iterdir()
    metrics.gauge("loss", 2.0)
    metrics.flush(env_steps=1, updates=0)
    with files_of_at_most(events.stat().st_size):
        for step in range(2, 1500):
            metrics._writers[0].add({"learning/loss": 3.0}, step)
    metrics._writers[0].add({"learning/loss": 4.0}, 2000)
    metrics.close()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert [step for step, _ in scalars(events)] == [1]


def test_nothing_is_lost_between_threads(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path)

    def work() -> None:
        tally = metrics.tally()
        for _ in range(2000):
            metrics.count("frames")
            tally.measured["x"].append(1.0)
            tally.counted["updates"] += 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        metrics.flush(env_steps=0, updates=0)
    for thread in threads:
        thread.join()
    values = metrics.flush(env_steps=0, updates=0)
    metrics.close()
    assert values["frames"] == 8000.0
    assert metrics.totals()["updates"] == 8000.0
    assert all(line["kind"] == "metrics" for line in _lines(tmp_path))
