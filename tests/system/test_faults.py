"""Killed processes: the run continues, or ends as documented, and nothing is left behind.

Everything is started through the programs that a user calls.
"""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from learner.launch.env_servers import socket_address
from seedrl.storage.checkpoints import Checkpoint, latest
from tests.system import processes
from tests.system.processes import TINY, TRAIN, Program, Programs

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"),
]

ACCOUNTS = ("accepted", "answered", "struck", "completed", "partial", "discarded", "evaluation")


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    with Programs(tmp_path) as started:
        yield started


@pytest.fixture
def address() -> Iterator[str]:
    with socket_address() as own:
        yield own


def check_ledger(line: dict[str, Any]) -> None:
    """The accounts of one line of metrics; what is queued or dispatched is at most a row a slot."""
    account = {name: line.get(f"ledger/{name}", 0) for name in ACCOUNTS}
    in_flight = account["accepted"] - account["answered"] - account["struck"]
    assert 0 <= in_flight <= 6, account
    kept = account["completed"] + account["partial"] + account["evaluation"]
    assert account["answered"] == kept + account["discarded"], account
    # No slot has more than a page that is not full.
    assert 0 <= account["partial"] <= 4 * 15, account
    assert line.get("ledger/rejected", 0) == line.get("ledger/duplicate", 0) == 0, line


def saved(workdir: Path) -> Checkpoint:
    found = latest(workdir / "checkpoints")
    assert found is not None
    return found


def has_learnt(lines: list[dict[str, Any]]) -> bool:
    return bool(lines[-1]["updates"] > lines[0]["updates"])


def kill_an_env_server(run: Program, workdir: Path) -> dict[str, Any]:
    """Kills one; the first line of metrics after it is back and 50 more steps were taken."""
    logs = [workdir / "logs" / f"env_server_{index}.log" for index in range(2)]
    before = sum(map(processes.connections, logs))
    victim = min(processes.descendants(run.pid, "envs_server"))
    os.kill(victim, signal.SIGKILL)
    processes.wait_for(lambda: sum(map(processes.connections, logs)) > before, run)
    assert len(processes.descendants(run.pid, "envs_server")) == 2
    assert not processes.is_running(victim)
    steps = processes.records(workdir)[-1]["env_steps"]
    return processes.wait_for(
        lambda: next(
            (line for line in processes.records(workdir) if line["env_steps"] > steps + 50), None
        ),
        run,
    )


def test_a_killed_env_server_comes_back_and_a_killed_supervisor_leaves_nothing_behind(
    programs: Programs, tmp_path: Path
) -> None:
    workdir = tmp_path / "run"
    run = programs(*TRAIN, "cartpole_r2d2", "--workdir", workdir, *TINY)
    processes.wait_for(lambda: any(line["updates"] > 0 for line in processes.records(workdir)), run)
    for _ in range(5):
        line = kill_an_env_server(run, workdir)
        # It may have been killed on the last row of a page; then nothing was lost.
        if line.get("ledger/discarded", 0) > 0:
            break
    assert line["ledger/discarded"] > 0
    assert "env server 0 ended with 137 and is started again" in run.stderr
    lines = processes.records(workdir)
    for line in lines:
        check_ledger(line)
    assert lines[-1]["updates"] > lines[0]["updates"]

    left = processes.descendants(run.pid)
    assert len(left) == 3
    run.signal(signal.SIGKILL)
    assert run.end() == -signal.SIGKILL
    processes.wait_until_gone(left)
    # The learner was not killed with it: it has saved what it had.
    assert saved(workdir).meta["env_steps"] >= lines[-1]["env_steps"]


def test_a_killed_learner_ends_a_supervised_run_with_its_exit_code(
    programs: Programs, tmp_path: Path
) -> None:
    workdir = tmp_path / "run"
    run = programs(*TRAIN, "cartpole_r2d2", "--workdir", workdir, *TINY)
    log = workdir / "logs" / "env_server_1.log"
    processes.wait_for(lambda: processes.connections(log), run)
    (learner,) = processes.descendants(run.pid, "-m learner ")
    left = processes.descendants(run.pid)
    os.kill(learner, signal.SIGKILL)
    assert run.end() == 128 + signal.SIGKILL
    assert len(left) == 3
    processes.wait_until_gone(left)


def test_a_learner_that_comes_back_resumes_and_gets_its_env_servers_back(
    programs: Programs, tmp_path: Path, address: str
) -> None:
    workdir = tmp_path / "run"
    command = ("learner", "cartpole_r2d2", "--workdir", workdir, "--bind", address, *TINY)
    command = (*command, "--checkpoint.interval-seconds", "0.5")
    learner = programs(*command)
    env_server = programs("envs_server", "--learner", address, "--num-envs", 6)
    processes.wait_for(
        lambda: (found := latest(workdir / "checkpoints")) and found.step > 0, learner
    )
    learner.signal(signal.SIGKILL)
    assert learner.end() == -signal.SIGKILL
    found = saved(workdir)
    assert found.step > 0
    earlier = len(processes.records(workdir))

    learner = programs(*command)
    lines = processes.wait_for(
        lambda: (
            lines if (lines := processes.records(workdir)[earlier:]) and has_learnt(lines) else None
        ),
        learner,
    )
    assert lines[0]["updates"] >= found.step
    assert lines[0]["env_steps"] >= found.meta["env_steps"]
    assert lines[-1]["updates"] > found.step
    assert env_server.stderr.count("connected: ") == 2
    assert env_server.stderr.count("disconnected from the learner") == 1

    learner.signal(signal.SIGTERM)
    assert learner.end() == 0
    assert all(map(processes.PROGRESS.match, learner.stderr.splitlines())), learner.stderr
    # Saved between the last line of metrics and the end.
    assert saved(workdir).step >= processes.records(workdir)[-1]["updates"]
    processes.wait_for(
        lambda: env_server.stderr.count("disconnected from the learner") == 2, env_server
    )
    env_server.signal(signal.SIGTERM)
    assert env_server.end() == 0
