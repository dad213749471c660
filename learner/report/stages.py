"""Where the time of a run goes: each thread's by stage, and the processor time of its processes."""

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from learner.report.metrics import Tally

# Of each side, in the order of a turn; `metric_table` says what each is.
STAGES = {
    "acting": ("environment", "batch", "transfer", "act", "wire", "other", "waits"),
    "learning": ("insert", "sample", "learn", "publish", "other", "waits"),
}
COMPUTING = ("transfer", "act", "wire", "other")  # of acting; in the rest it waits


class Laps:
    """Divides the time of one thread among the stages of a side, into the tally of that thread.

    A lap reads the clock once. Time between the end of one turn and the start of the next is in no
    stage: it is the residue.
    """

    def __init__(self, tally: Tally, clock: Callable[[], float], *, num_threads: int = 1):
        """`num_threads`: that share the side; the shares are their mean."""
        self._tally, self._clock, self._num_threads = tally, clock, num_threads
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
        self._add(stage, end - self._last)
        self._last = end
        return end

    @contextlib.contextmanager
    def during(self, stage: str) -> Iterator[None]:
        """Adds the time of its body to a stage, also to a report in the middle of it."""
        start = self._clock()
        self._tally.under_way = stage, start
        yield
        # In this order: a report in between counts the time twice, and never loses it.
        self._add(stage, self._clock() - start)
        self._tally.under_way = None

    def _add(self, stage: str, seconds: float) -> None:
        self._tally.spent[stage] += seconds / self._num_threads


def num_cores() -> int:
    """Cores that this process may use."""
    # macOS has no affinity.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class ProcessorTime:
    """Processor seconds of this process and of others of this machine. Used by one thread."""

    def __init__(self, pids: Iterable[int] = ()) -> None:
        self._before = _processor_seconds(pids)

    def spent(self, pids: Iterable[int] = ()) -> dict[str, float]:
        """Seconds since the call before, by metric without `_seconds`.

        `learner_cpu` is of all threads of this process, `learner_cpu_delay` how long they could
        have run and had no core, all together; `env_servers_cpu` of `pids`, of which a new one
        counts from now on; `other_cpu` of all other programs on the cores that this one may use.
        """
        before, self._before = self._before, _processor_seconds(pids)
        spent = {
            name: sum(now - before[name].get(which, now) for which, now in seconds.items())
            for name, seconds in self._before.items()
        }
        ours = spent["learner_cpu"] + spent["env_servers_cpu"]
        return {**spent, "other_cpu": max(0.0, spent["other_cpu"] - ours)}


def _processor_seconds(pids: Iterable[int]) -> dict[str, dict[object, float]]:
    # By name and by thread, process or core; `other_cpu` has ours, too. Linux shows those of others
    # in /proc; elsewhere they are not known. A thread or a process may be gone.
    found: dict[str, dict[object, float]] = {
        "learner_cpu": {0: time.process_time()},
        "learner_cpu_delay": {},
        "env_servers_cpu": {},
        "other_cpu": {},
    }
    for path in Path("/proc/self/task").glob("*/schedstat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            found["learner_cpu_delay"][path.parent.name] = int(path.read_text().split()[1]) / 1e9
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The name before the bracket may hold anything.
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            found["env_servers_cpu"][pid] = _in_seconds(fields[11:13])
    with contextlib.suppress(OSError, ValueError, AttributeError):
        cores = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        for core, *ticks in map(str.split, Path("/proc/stat").read_text().splitlines()):
            if core in cores:
                # Of all but waits, which are the fourth and fifth; a guest's time is in the first.
                found["other_cpu"][core] = _in_seconds([*ticks[:3], *ticks[5:8]])
    return found


def _in_seconds(ticks: Iterable[str]) -> float:
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
