"""Where the time of a run goes: each thread's by stage, and the processor time of its processes."""

import contextlib
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from learner.report.metrics import Tally

# Of each side, in the order of a turn; `metric_table` says what each is.
STAGES = {
    "acting": ("environment", "batch", "transfer", "act", "wire", "other", "waits"),
    "learning": ("insert", "sample", "learn", "publish", "other", "waits"),
}


class Laps:
    """Divides the time of one thread among the stages of a side, into the tally of that thread.

    A lap reads the clock once. Time between the end of one turn and the start of the next is in no
    stage: it is the residue.
    """

    def __init__(self, tally: Tally, clock: Callable[[], float], *, num_threads: int = 1):
        """`num_threads`: that share the side; the shares are their mean."""
        self._spent, self._clock, self._num_threads = tally.spent, clock, num_threads
        self._last = 0.0

    def start(self) -> float:
        """Starts a turn; the time."""
        self._last = self._clock()
        return self._last

    def lap(self, stage: str, until: float | None = None) -> float:
        """Adds the time since the last lap to a stage, such as `acting_act`; its end.

        `until`: that is already past; by default now.
        """
        end = self._clock() if until is None else max(until, self._last)
        self.add(stage, end - self._last)
        self._last = end
        return end

    def add(self, stage: str, seconds: float) -> None:
        """Adds time that was measured otherwise."""
        self._spent[stage] += seconds / self._num_threads


def num_cores() -> int:
    """Cores that this process may use."""
    # macOS has no affinity.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class ProcessorTime:
    """Processor seconds of this process and of others of this machine, since the call before."""

    # Used by one thread. Linux shows that of others in /proc; elsewhere it is not known.

    def __init__(self) -> None:
        self._own = time.process_time()
        self._delays = _delays()
        self._cores = _cores_seconds()
        self._others: dict[int, float] = {}

    def own(self) -> float:
        """Of all threads of this process."""
        before, self._own = self._own, time.process_time()
        return self._own - before

    def delay(self) -> float:
        """How long its threads could have run and had no core, all together."""
        before, self._delays = self._delays, _delays()
        return sum(now - before.get(thread, now) for thread, now in self._delays.items())

    def cores(self) -> float:
        """Of all programs, on the cores that this one may use."""
        before, self._cores = self._cores, _cores_seconds()
        return self._cores - before

    def others(self, pids: Iterable[int]) -> float:
        """Of processes by their ids; one that was not asked for before counts from now on."""
        before, self._others = self._others, {}
        for pid in pids:
            if (seconds := _processor_seconds(pid)) is not None:
                self._others[pid] = seconds
        return sum(now - before.get(pid, now) for pid, now in self._others.items())


def _delays() -> dict[str, float]:
    # By thread; a thread or its file may be gone.
    found = {}
    for path in Path("/proc/self/task").glob("*/schedstat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            found[path.parent.name] = int(path.read_text().split()[1]) / 1e9
    return found


def _cores_seconds() -> float:
    # Of all but waits, which are the fourth and fifth; a guest's time is in the first two.
    seconds = 0.0
    with contextlib.suppress(OSError, ValueError, AttributeError):
        cores = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        for name, *ticks in map(str.split, Path("/proc/stat").read_text().splitlines()):
            if name in cores:
                busy = sum(map(int, ticks[:8])) - sum(map(int, ticks[3:5]))
                seconds += busy / os.sysconf("SC_CLK_TCK")
    return seconds


def _processor_seconds(pid: int) -> float | None:
    try:
        # The name before the bracket may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None
