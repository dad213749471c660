"""One environment of 32 that is always bad: the run goes on without it, and learns what it is to.

Each is a whole `seedrl train` until the target is confirmed, beside which figures go on record: how
soon the bad one was quarantined, and how fast each of the others was stepped.
"""

import json
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.system.processes import TRAIN, Programs, records

pytestmark = pytest.mark.gate

_ENVIRONMENT = "tests.faults.bad_environment:make"
_FAULTS = ("none", "raises", "hangs", "nan", "1e38", "1e300")


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    with Programs(tmp_path) as programs:
        yield programs


def _events(workdir: Path, kind: str) -> list[dict[str, Any]]:
    lines = (workdir / "events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["kind"] == kind]


@pytest.mark.parametrize("fault", _FAULTS)
def test_one_bad_environment_of_32_never_ends_a_run_and_never_stops_learning(
    fault: str, programs: Programs, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    workdir = tmp_path / "run"
    arguments = json.dumps({"claim": str(tmp_path / "claim"), "fault": fault})
    run = programs(
        *TRAIN,
        "cartpole_r2d2",
        f"--workdir={workdir}",
        f"--environment.id={_ENVIRONMENT}",
        f"--environment.arguments={arguments}",
        "--env-servers=2",
        "--serving.training-slots=28",
        "--serving.evaluation-slots=4",
        "--serving.step-deadline-seconds=5",
        "--logging.interval-seconds=1",
    )
    code = run.end()
    assert code == 0, run.stderr
    quarantined = _events(workdir, "environment_quarantined")
    failures = _events(workdir, "environment_failed")
    lines = records(workdir)
    end = lines[-1]
    assert [event["quarantined"] for event in quarantined] == [1] * (fault != "none")
    assert end["slots_quarantined"] == (fault != "none")
    after = lines
    if quarantined:
        seconds = quarantined[0]["time_seconds"] - failures[0]["time_seconds"]
        assert seconds <= 60.0
        record_property("seconds_from_first_failure_to_quarantine", round(seconds, 1))
        after = [each for each in lines if each["time_seconds"] > quarantined[0]["time_seconds"]]
    rates = [
        each["env_steps_per_second"] / each["slots_live"] for each in after if each["slots_live"]
    ]
    record_property(f"steps_per_second_and_live_environment_{fault}", statistics.median(rates))
    record_property("env_steps", end["env_steps"])
