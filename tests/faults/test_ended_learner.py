"""A run that is asked to end while the machine is busy, or while nothing can be written."""

import random
import signal
import sys
import time
from pathlib import Path

import pytest

from seedrl.exit_codes import ExitCode
from tests.faults.scale import scaled
from tests.faults.watched_learner import (
    busy_processes,
    fill,
    newest_durable,
    small_disk,
)
from tests.system.processes import TINY, TRAIN, UNHURRIED, Programs, events, records, wait_for

pytestmark = [
    pytest.mark.gate,
    pytest.mark.timeout(4 * 3600),
    pytest.mark.skipif(sys.platform != "linux", reason="mounts disks of its own"),
]
ENDS, BUSY, SECONDS = 30, 8, 20.0
# With the picture: drawing it is what took a minute under load.
FLAGS = (*(flag for flag in TINY if "learning-curve" not in flag), *UNHURRIED)


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
        assert "Traceback" not in run.stderr
