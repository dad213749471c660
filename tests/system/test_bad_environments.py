"""One environment that is always bad: the run goes on without it, and learns."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seedrl.exit_codes import ExitCode
from tests.system.processes import TINY, TRAIN, UNHURRIED, Programs, events, records, wait_for

pytestmark = [pytest.mark.gate, pytest.mark.timeout(3600)]

_NUM_ENVIRONMENTS = 6  # as TINY has slots
_UPDATES = 200  # after it was left out


def _disabled(workdir: Path) -> list[dict[str, Any]]:
    """Events of environments that their env server has disabled."""
    return [each for each in events(workdir, "environment_failed") if each["fields"]["disabled"]]


@pytest.mark.parametrize("fault", ["raises", "nan", "1e38", "1e300"])
def test_one_bad_environment_never_ends_a_run_and_never_stops_learning(
    fault: str, programs: Programs, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    workdir = tmp_path / "run"
    arguments = {"claim": str(tmp_path / "claim"), "fault": fault, "per_server": _NUM_ENVIRONMENTS}
    run = programs(
        *(*TRAIN, "cartpole_r2d2", f"--workdir={workdir}", *TINY, *UNHURRIED),
        "--environment.id=tests.faults.bad_environment:make",
        f"--environment.arguments={json.dumps(arguments)}",
        "--env-servers=1",
    )
    wait_for(lambda: _disabled(workdir), run)
    updates = records(workdir)[-1]["updates"]
    wait_for(lambda: records(workdir)[-1]["updates"] > updates + _UPDATES, run)
    run.signal(signal.SIGTERM)
    assert run.end() == ExitCode.OK, run.stderr

    (disabled,) = _disabled(workdir)
    failures = events(workdir, "environment_failed")
    seconds = disabled["time_seconds"] - failures[0]["time_seconds"]
    record_property(f"{fault}_quarantined_seconds", round(seconds, 1))
    assert seconds <= 60.0
    # One line, in which it has a name; no more failures after it.
    assert len([line for line in run.stderr.splitlines() if disabled["text"] in line]) == 1
    assert failures[-1]["time_seconds"] <= disabled["time_seconds"]
    last = [line for line in records(workdir) if line.get("slots_live")][-1]
    assert (last["slots_quarantined"], last["slots_live"]) == (1, _NUM_ENVIRONMENTS - 1)


def test_a_synchronous_round_does_not_wait_for_the_slot_of_a_disabled_environment(
    programs: Programs, tmp_path: Path
) -> None:
    workdir = tmp_path / "run"
    arguments = {"claim": str(tmp_path / "claim"), "fault": "raises", "per_server": 4}
    run = programs(
        *(*TRAIN, "default_ppo", f"--workdir={workdir}", "--env-servers=1"),
        *("--serving.training-slots=4", "--learning.batch-sequences=4", "--agent.unroll=7"),
        *("--serving.evaluation-slots=0", "--agent.epochs=1", "--agent.minibatches=1"),
        *("--agent.chunk-steps=0", "--logging.interval-seconds=0.25"),
        "--environment.id=tests.faults.bad_environment:make",
        f"--environment.arguments={json.dumps(arguments)}",
        *UNHURRIED,
    )
    wait_for(lambda: _disabled(workdir), run)
    updates = records(workdir)[-1]["updates"]
    wait_for(lambda: records(workdir)[-1]["updates"] > updates + 20, run)
    run.signal(signal.SIGTERM)
    assert run.end() == ExitCode.OK, run.stderr  # so the ledger balances
    last = [line for line in records(workdir) if line.get("slots_live")][-1]
    assert (last["slots_quarantined"], last["slots_live"], last["batch_fill"]) == (1, 3, 0.75)
    assert {line.get("policy_lag_updates_max", 0) for line in records(workdir)} == {0}
