import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from learner.report.metrics import Metrics, Tally
from learner.report.stages import Laps, ProcessorTime


def test_each_lap_counts_in_its_stage_and_the_time_between_turns_in_none() -> None:
    times = iter([10.0, 11.0, 15.0, 20.0, 20.5, 21.0, 25.0])
    tally = Tally()
    laps = Laps(tally, lambda: next(times), num_threads=2)
    assert laps.start() == 10.0
    assert laps.lap("acting_other") == 11.0
    # Until a time that is past, but not before the last lap.
    assert laps.lap("acting_environment", 13.0) == 13.0
    assert laps.lap("acting_environment", 12.0) == 13.0
    assert laps.lap("acting_batch") == 15.0
    assert laps.start() == 20.0
    laps.lap("acting_other")
    with laps.during("acting_waits"):
        pass
    halves = {"other": 0.75, "environment": 1.0, "batch": 1.0, "waits": 2.0}
    assert dict(tally.spent) == {f"acting_{stage}": value for stage, value in halves.items()}


def test_a_wait_that_outlasts_reports_has_its_share_of_each(tmp_path: Path) -> None:
    """Acting waited for updates of 20 s, and the run reported that neither side waits."""
    now = [100.0]
    metrics = Metrics(tmp_path, clock=lambda: now[0])
    laps = Laps(metrics.tally(), lambda: now[0])
    shares = []

    def report(after: float) -> None:
        now[0] += after
        shares.append(metrics.flush(env_steps=0, updates=0)["acting_waits_share"])

    now[0] += 3.0
    with laps.during("acting_waits"):
        report(1.0)
        report(5.0)
        report(5.0)
        now[0] += 2.0
    report(2.0)
    metrics.close()
    assert shares == [0.25, 1.0, 1.0, 0.5]


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs /proc")
def test_processor_time_of_others_counts_from_the_first_look_until_they_are_gone() -> None:
    work = "import time\ninput()\nend = time.process_time() + 0.2\n"
    work += "while time.process_time() < end: pass\nprint(flush=True)\ninput()"
    with subprocess.Popen(
        [sys.executable, "-c", work], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None and other.stdin is not None
        processor_time = ProcessorTime()
        unknown = ProcessorTime()
        first = processor_time.spent([other.pid])
        other.stdin.write(b"\n")
        other.stdin.flush()
        other.stdout.readline()
        second = processor_time.spent([other.pid])
        cores = unknown.spent()
        other.communicate(b"\n")
    seconds = second["env_servers_cpu"]
    assert first["env_servers_cpu"] == 0.0 and 0.05 < seconds < 1.0
    assert cores["other_cpu"] > 0.9 * seconds
    assert processor_time.spent([other.pid])["env_servers_cpu"] == 0.0


@pytest.mark.skipif(not os.path.exists("/proc/self/schedstat"), reason="needs /proc")
def test_threads_that_have_no_core_are_delayed() -> None:
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        # Others of this machine and these two share one core.
        work = "import time\nwhile time.process_time() < 0.2: pass"
        processor_time = ProcessorTime()
        with subprocess.Popen([sys.executable, "-c", work]):
            end = time.process_time() + 0.12
            while time.process_time() < end:
                pass
        delay = processor_time.spent()["learner_cpu_delay"]
    finally:
        os.sched_setaffinity(0, cores)
    assert delay > 0.05
