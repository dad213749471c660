"""A run that is asked to end while the machine is busy, or while nothing can be written."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from seedrl.exit_codes import ExitCode
from tests.faults.scale import scaled
from tests.faults.watched_learner import (
    busy_processes,
    events,
    fill,
    newest_durable,
    read_only,
    small_disk,
)
from tests.patience import wait_until
from tests.system.processes import ROOT, TINY, TRAIN, UNHURRIED, Programs, records, wait_for

pytestmark = [
    pytest.mark.gate,
    pytest.mark.timeout(4 * 3600),
    pytest.mark.skipif(sys.platform != "linux", reason="mounts disks of its own"),
]
ENDS, BUSY, SECONDS = 30, 8, 20.0
# With the picture: drawing it is what took a minute under load.
FLAGS = (*(flag for flag in TINY if "learning-curve" not in flag), *UNHURRIED)


def has_learned(workdir: Path) -> bool:
    return any(line["updates"] > 0 for line in records(workdir))


def test_a_busy_machine_does_not_keep_a_run_from_ending_saved(
    programs: Programs, tmp_path: Path
) -> None:
    workdir, chooser, took = tmp_path / "run", random.Random(0), list[float]()
    signals = (signal.SIGTERM, signal.SIGTERM, signal.SIGHUP)
    with busy_processes(BUSY):
        for number in range(scaled(ENDS)):
            words = (*TRAIN, "cartpole_r2d2", "--workdir", workdir, *FLAGS)
            run = programs(*words, "--checkpoint-replay")
            before = newest_durable(workdir)
            if number:
                event = wait_for(lambda n=number: events(workdir, "resumed")[n - 1 :], run)[0]
                assert event["fields"]["updates"] == before
            lines = len(records(workdir))
            wait_for(lambda n=lines: records(workdir)[n:], run)
            time.sleep(chooser.uniform(0.0, 2.0))  # any phase of a run: compiling, training, saving
            start = time.monotonic()
            run.signal(signals[number % len(signals)])
            assert run.end() == ExitCode.OK
            took.append(time.monotonic() - start)
            # What was reported last is what was saved.
            assert newest_durable(workdir) == records(workdir)[-1]["updates"] >= before
    assert max(took) <= SECONDS


def test_a_run_whose_whole_folder_is_on_a_full_disk_trains_on_and_says_what_is_not_saved(
    programs: Programs, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "disk", 64) as disk:
        workdir = disk / "run"
        words = (*TRAIN, "cartpole_r2d2", "--workdir", workdir, *FLAGS)
        run = programs(*words, "--checkpoint.interval-seconds", 0.5)
        wait_for(lambda: newest_durable(workdir) > 0, run)
        ballast = fill(disk)
        full = newest_durable(workdir)
        wait_for(lambda: "cannot save checkpoint" in run.stderr, run)
        time.sleep(2.0)  # everything else is written at least once a second
        assert not run.has_ended
        ballast.unlink()
        wait_for(lambda: newest_durable(workdir) > full, run)
        fill(disk)
        run.signal(signal.SIGTERM)
        code = run.end()
        # What was saved before is there; that the rest is not has its code.
        assert newest_durable(workdir) > full
        assert code == ExitCode.UNREADABLE_CHECKPOINT
        # Tensorstore prints them for a save that the full disk has interrupted; nothing is lost.
        noise = run.stderr.count("RuntimeError: Event loop is closed")
        assert run.stderr.count("Traceback") == noise


def test_a_folder_that_becomes_read_only_costs_what_is_not_saved_and_no_more(
    programs: Programs, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "disk", 64) as disk:
        workdir = disk / "run"
        words = (*TRAIN, "cartpole_r2d2", "--workdir", workdir, *FLAGS)
        run = programs(*words, "--checkpoint.interval-seconds", 0.5)
        wait_for(lambda: newest_durable(workdir) > 0, run)
        checkpoints = workdir / "checkpoints"
        with read_only(checkpoints, disk / "elsewhere"):
            saved = newest_durable(workdir)
            steps = records(workdir)[-1]["env_steps"]
            wait_for(lambda: "cannot save checkpoint" in run.stderr, run)
            wait_for(lambda: records(workdir)[-1]["env_steps"] > steps + 200, run)
            run.signal(signal.SIGTERM)
            code = run.end()
        assert code == ExitCode.UNREADABLE_CHECKPOINT
        assert newest_durable(workdir) == saved
        assert "Traceback" not in run.stderr


@pytest.mark.parametrize("stream", ["a reader that goes", "a full disk"])
def test_a_run_whose_output_cannot_be_written_is_saved(tmp_path: Path, stream: str) -> None:
    workdir = tmp_path / "run"
    command = [sys.executable, "-m", *TRAIN, "cartpole_r2d2", "--workdir", str(workdir)]
    command += [*map(str, FLAGS)]
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipe = subprocess.PIPE
    if stream == "a full disk":
        with open("/dev/full", "wb") as full:
            run = subprocess.Popen(command, env=variables, stdout=full, stderr=full)
    else:
        run = subprocess.Popen(command, env=variables, stdout=pipe, stderr=subprocess.STDOUT)
        assert run.stdout is not None and run.stdout.readline()
        run.stdout.close()  # as `| head -1` does
    try:
        wait_until(lambda: run.poll() is not None or has_learned(workdir))
        run.send_signal(signal.SIGTERM)
        code = run.wait()
    finally:
        run.kill()
        run.wait()
    assert code == ExitCode.OK
    assert newest_durable(workdir) == records(workdir)[-1]["updates"] > 0
