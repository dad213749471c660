"""The story of one run: killed, damaged and resumed. It learns twice.

Everything is started through the programs that a user calls.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from learner.processes.env_servers import socket_address
from seedrl.checkpoints import Checkpoint, latest
from tests.system import processes
from tests.system.processes import TINY, TRAIN, UNHURRIED, Program, Programs

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"),
]

FLAGS = (*TINY, *UNHURRIED, "--checkpoint-replay")
# Until a checkpoint is there; each takes a tenth of a second of CPU time.
SAVING = ("--checkpoint.interval-seconds", 1.0)
ACCOUNTS = ("accepted", "answered", "struck", "completed", "partial", "discarded", "evaluation")


def flip_a_byte(checkpoint: Path) -> None:
    """In the largest file that is not text."""
    files = [path for path in checkpoint.rglob("*") if path.is_file() and path.suffix != ".json"]
    path = max(files, key=lambda file: file.stat().st_size)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


def steps(workdir: Path) -> list[int]:
    """The steps of the run's checkpoints, in order."""
    folder = workdir / "checkpoints"
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())


def saved(workdir: Path) -> Checkpoint:
    found = latest(workdir / "checkpoints")
    assert found is not None
    return found


def check_ledger(line: dict[str, Any]) -> None:
    """The accounts of one line of metrics; what is queued or dispatched is at most a row a slot."""
    account = {name: line.get(f"ledger/{name}", 0) for name in ACCOUNTS}
    in_flight = account["accepted"] - account["answered"] - account["struck"]
    assert 0 <= in_flight <= 6, account
    kept = account["completed"] + account["partial"] + account["evaluation"]
    assert account["answered"] == kept + account["discarded"], account
    # No slot has more than a page that is not full.
    assert 0 <= account["partial"] <= 4 * 7, account
    assert line.get("ledger/rejected", 0) == line.get("ledger/duplicate", 0) == 0, line


def kill_an_env_server(run: Program, workdir: Path) -> dict[str, Any]:
    """Kills one; the first line of metrics after it is back and 50 more steps were taken."""
    logs = [workdir / "logs" / f"env_server_{index}.log" for index in range(2)]
    before = sum(map(processes.connections, logs))
    victim = min(processes.env_servers(run.pid))
    os.kill(victim, signal.SIGKILL)
    processes.wait_for(lambda: sum(map(processes.connections, logs)) > before, run)
    assert len(processes.env_servers(run.pid)) == 2
    assert not processes.is_running(victim)
    steps = processes.records(workdir)[-1]["env_steps"]
    return processes.wait_for(
        lambda: next(
            (line for line in processes.records(workdir) if line["env_steps"] > steps + 50), None
        ),
        run,
    )


def start_a_run(programs: Programs, workdir: Path) -> None:
    """Trains until two checkpoints are there; an env server is killed, then the learner."""
    run = programs(*TRAIN, "cartpole_r2d2", "--workdir", workdir, *FLAGS, *SAVING)
    processes.wait_for(
        lambda: sum(line["updates"] > 0 for line in processes.records(workdir, "checkpoint")) > 1,
        run,
    )
    for _ in range(5):
        line = kill_an_env_server(run, workdir)
        # It may have been killed on the last row of a page; then nothing was lost.
        if line.get("ledger/discarded", 0) > 0:
            break
    assert line["ledger/discarded"] > 0
    # The two of the start, and one that returns.
    assert processes.events(workdir, "server_left")
    assert len(processes.events(workdir, "server_joined")) >= 3
    lines = processes.records(workdir)
    for line in lines:
        check_ledger(line)
    assert lines[-1]["updates"] > lines[0]["updates"]

    left = processes.descendants(run.pid)
    assert len(left) == 3
    run.signal(signal.SIGKILL)
    assert run.end() == -signal.SIGKILL
    processes.wait_until_gone(left)
    assert 0 < saved(workdir).meta["env_steps"] <= processes.records(workdir)[-1]["env_steps"]
    assert len(steps(workdir)) == 2


def resume_from_the_older_checkpoint(programs: Programs, workdir: Path, address: str) -> None:
    """The newest is damaged. The replay is learned from at once; the run ends by itself."""
    older, newest = steps(workdir)
    damaged = workdir / "checkpoints" / f"{newest:012d}"
    flip_a_byte(damaged)
    found, earlier = saved(workdir), len(processes.records(workdir))
    assert found.step == older
    # The time of the run goes on from the checkpoint, as its counts do.
    before = [line for line in processes.records(workdir) if line["updates"] <= older][-1]
    # Not enough for a replay that starts empty (replay.min_steps).
    total = found.meta["env_steps"] + 40
    words = (*learner_command(workdir, address), "--resume", "must")
    learner = programs(*words, "--learning.total-steps", total)
    env_server = programs(
        *("envs_server", "--learner", address, "--num-envs", 6, "--allow-env", "tests.*")
    )
    assert learner.end() == 0, learner.stderr
    told = [line for line in learner.stderr.splitlines() if not processes.PROGRESS.match(line)]
    assert len(told) == 2, told  # and where it is now
    assert f"damaged checkpoint, taking an older one: {damaged}" in told[0]
    assert processes.events(workdir, "resumed")[-1]["fields"]["updates"] == older
    first, *_, last = processes.records(workdir)[earlier:]
    assert first["replay_sequences"] > 0
    assert first["elapsed_seconds"] > before["elapsed_seconds"]
    assert first["updates"] >= older
    assert first["env_steps"] >= found.meta["env_steps"]
    # To the last batch: of at most four slots.
    assert total <= last["env_steps"] < total + 4
    assert older < last["updates"]
    # A few more may have been made between the last line and the end.
    assert saved(workdir).step == steps(workdir)[-1] >= last["updates"]
    assert env_server.end() == 0 and env_server.stderr.count("connected: ") == 1


def learner_command(workdir: Path, address: str) -> tuple[object, ...]:
    return ("learner", "cartpole_r2d2", "--workdir", workdir, "--bind", address, *FLAGS)


# Other shapes are refused: tests/learner/checkpoints/test_restoring.py. Nothing intact:
# tests/seedrl/test_checkpoints.py.
def test_a_run_through_kills_damage_and_resume(programs: Programs, tmp_path: Path) -> None:
    workdir = tmp_path / "run"
    start_a_run(programs, workdir)
    with socket_address() as address:
        resume_from_the_older_checkpoint(programs, workdir, address)
