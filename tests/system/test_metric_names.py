"""A run emits every metric that docs/metrics.md explains, and no other."""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from learner.reporting.metric_names import METRICS, RECORDS, lines
from learner.serving.ledger import ACCOUNTS

sys.path.insert(0, str(Path(__file__).parent))

import processes
from processes import TINY, TRAIN, Programs

pytestmark = pytest.mark.slow

DOCUMENTED = {line for metric in METRICS for line in lines(metric)} | {
    f"ledger/{account}" for account in ACCOUNTS
}
RARE = {line for metric in METRICS if metric.is_rare for line in lines(metric)}
ON_EVERY_LINE = {"kind", "time_seconds", "elapsed_seconds"}
# With these an update was reported, and an episode of either role.
LAST_TO_COME = {"loss", "length/training", "length/evaluation"}


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    with Programs(tmp_path) as started:
        yield started


def names(workdir: Path, kind: str) -> set[str]:
    """Of the fields of all lines of a kind."""
    return {name for line in processes.records(workdir, kind) for name in line}


def has_reported_all(workdir: Path) -> bool:
    return names(workdir, "metrics") >= LAST_TO_COME and all(
        names(workdir, kind) for kind in ("evaluation", "checkpoint")
    )


def test_a_run_emits_what_is_documented_and_nothing_else(
    programs: Programs, tmp_path: Path
) -> None:
    workdir = tmp_path / "run"
    saving = ("--checkpoint.interval-seconds", 1)
    run = programs(*TRAIN, "cartpole_r2d2", "--workdir", workdir, *TINY, *saving)
    processes.wait_for(lambda: has_reported_all(workdir), run)
    run.signal(signal.SIGTERM)
    assert run.end() == 0, run.stderr

    emitted = names(workdir, "metrics") - ON_EVERY_LINE
    documented = DOCUMENTED - ON_EVERY_LINE
    assert emitted - documented == set(), "emitted and not documented"
    assert documented - emitted - RARE == set(), "documented and never emitted"
    for record in RECORDS:
        fields = set(ACCOUNTS) if record.kind == "ledger" else set(record.fields)
        assert names(workdir, record.kind) == fields | ON_EVERY_LINE
