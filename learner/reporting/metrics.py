"""Metrics of a run: collected from all threads, written once per interval.

A line of `metrics.jsonl` is a JSON object with `kind`, `time_seconds` (Unix time) and
`elapsed_seconds` (of the run); numbers that are not finite are null. The line of an interval, whose
kind is `metrics`, has

    env_steps, updates           totals, as given to `flush`
    <name>                       `gauge`: the last value; `observe`: the interval's mean,
                                 in a tally of its last 65536 values at most;
                                 `count`: the total of the whole run
    <name>_per_second            `count`, over the interval
    <name>_p50, _p95, _p99       `observe`, for a few names, over the interval's last 8192 values
    <name>_waits_share           `waited`, as a share of the interval
    return/<role>, length/<role> means over the episodes that ended in the interval;
                                 `return/training_min`, `_max`: their extremes
    episodes/<role>              episodes of the whole run

`learner.reporting.metric_names` says what each name means. The last line, of kind `ledger`, has the
accounts of `learner.serving.ledger` when all is at rest.

After a resume the lines continue below those of the earlier process, as do counts and
`elapsed_seconds`. The lines that it wrote after its last checkpoint remain, so `env_steps` may step
back once; TensorBoard hides them.
"""

import contextlib
import json
import math
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from learner.reporting.json_lines import JsonLines
from learner.reporting.metric_names import DISTRIBUTIONS, EXTREMES, PERCENTILES, group
from learner.reporting.writers.tensorboard import EventFile
from learner.reporting.writers.writer import Hyperparameter, Writer
from seedrl.run_files import METRICS

Role = Literal["training", "evaluation"]

_NUM_KEPT = 8192
_NUM_HELD = 2**16  # many times what happens in an interval
_TAIL_BYTES = 2**20  # hundreds of lines


class _Distribution:
    """Values of one interval: the mean of all, and the last ones for percentiles."""

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.values: deque[float] = deque(maxlen=_NUM_KEPT)


class Tally:
    """What one thread counts and measures at each batch: plain containers, so that it is cheap.

    That thread alone adds; at each report the main thread takes what is new (`Metrics.collect`).

    Attributes:
      counted: by name as `Metrics.count` takes them; each only grows.
      measured: by name, what is to be observed; of more than fits, the last.
      waited: by who waited, seconds; each only grows.
      episodes: role, sum of rewards and length of each that has ended.
    """

    def __init__(self) -> None:
        self.counted: dict[str, float] = defaultdict(float)
        self.measured: dict[str, deque[float]] = defaultdict(partial(deque, maxlen=_NUM_HELD))
        self.waited: dict[str, float] = defaultdict(float)
        self.episodes: deque[tuple[Role, float, int]] = deque()


class Metrics:
    """Collects from any thread; `flush` and `close` are called by one.

    Owns `workdir/metrics.jsonl` and the TensorBoard files in `workdir/tb`. A disk that refuses a
    line is reported as an error, and the run continues.

    Args:
      workdir: the run's folder.
      clock: monotonic seconds.
      elapsed_seconds: what earlier processes of the run took; see `elapsed_seconds`.
      totals: what the counts of earlier processes came to, as `totals` gave it.
      mirrors: take the same scalars as TensorBoard; closed with the files.
      purge_step: TensorBoard hides what earlier processes wrote for this many environment steps or
        more, for the run did not resume from there.
    """

    def __init__(
        self,
        workdir: Path,
        *,
        clock: Callable[[], float] = time.monotonic,
        elapsed_seconds: float = 0.0,
        totals: Mapping[str, float] | None = None,
        purge_step: int = 0,
        mirrors: Sequence[Writer] = (),
    ):
        workdir.mkdir(parents=True, exist_ok=True)
        self._clock = clock
        self._started = clock() - elapsed_seconds
        self._flushed = clock()
        self._lock = threading.Lock()
        self._totals: dict[str, float] = defaultdict(float, totals or {})
        self._counts: dict[str, float] = defaultdict(float)
        self._gauges: dict[str, float] = {}
        self._waits: dict[str, float] = defaultdict(float)
        self._distributions: dict[str, _Distribution] = defaultdict(_Distribution)
        # Each with what was taken of it before.
        self._tallies: list[tuple[Tally, Tally]] = []
        self._undescribed: dict[str, Hyperparameter] = {}
        self._lines = JsonLines(workdir / METRICS)
        self._writers = [EventFile(workdir / "tb", purge_step=purge_step), *mirrors]

    def tally(self) -> Tally:
        """What a thread fills that has no time to call; for the one thread that asks for it."""
        tally = Tally()
        self._tallies.append((tally, Tally()))
        return tally

    def collect(self) -> None:
        """Takes what is new in all tallies. For the thread that flushes, which does it too."""
        for tally, taken in self._tallies:
            for name, amount in _growth(tally.counted, taken.counted):
                self.count(name, amount)
            for who, seconds in _growth(tally.waited, taken.waited):
                self.waited(who, seconds)
            for name, values in list(tally.measured.items()):
                for _ in range(len(values)):
                    self.observe(name, values.popleft())
            for _ in range(len(tally.episodes)):
                self.episode(*tally.episodes.popleft())

    def count(self, name: str, amount: float = 1) -> None:
        """Adds to a count, of which total and rate are reported."""
        with self._lock:
            self._counts[name] += amount

    def gauge(self, name: str, value: float) -> None:
        """Sets a value; the last one is reported until there is a new one."""
        with self._lock:
            self._gauges[name] = value

    def observe(self, name: str, value: float) -> None:
        """Adds to a distribution, of which mean and percentiles are reported."""
        with self._lock:
            distribution = self._distributions[name]
            distribution.count += 1
            distribution.total += value
            distribution.values.append(value)

    def episode(self, role: Role, episode_return: float, length: int) -> None:
        """Takes a finished episode: sum of rewards, and length in agent steps."""
        with self._lock:
            self._totals[f"episodes/{role}"] += 1
            for name, value in ((f"return/{role}", episode_return), (f"length/{role}", length)):
                distribution = self._distributions[name]
                distribution.count += 1
                distribution.total += value
                distribution.values.append(value)

    def waited(self, who: str, seconds: float) -> None:
        """Adds time that a side spent waiting for the other. Report long waits in pieces."""
        with self._lock:
            self._waits[who] += seconds

    def flush(self, *, env_steps: int, updates: int) -> dict[str, float]:
        """Writes what the interval since the last flush showed, and returns it.

        Args:
          env_steps: training environment steps of the whole run; the x axis in TensorBoard.
          updates: updates of the whole run.
        """
        self.collect()
        with self._lock:
            now = self._clock()
            values = self._take(now - self._flushed)
            self._flushed = now
        values |= {
            "env_steps": float(env_steps),
            "updates": float(updates),
            "elapsed_seconds": now - self._started,
        }
        self._write({"kind": "metrics", **values}, now)
        finite = {_tag(name): value for name, value in values.items() if math.isfinite(value)}
        for writer in self._writers:
            writer.add(finite, env_steps)
            if self._undescribed:
                writer.describe(self._undescribed, ["return/evaluation", "return/training"])
        self._undescribed = {}
        return values

    def describe(self, fields: Mapping[str, Any]) -> None:
        """With the next flush, tells TensorBoard and mirrors what the run was configured with."""
        self._undescribed = {
            name: value if isinstance(value, bool | int | float | str) else str(value)
            for name, value in fields.items()
        }

    def totals(self) -> dict[str, float]:
        """What every count has come to in the whole run, by its name."""
        self.collect()
        with self._lock:
            names = self._totals.keys() | self._counts.keys()
            return {
                name: self._totals.get(name, 0.0) + self._counts.get(name, 0.0) for name in names
            }

    def record(self, kind: str, **fields: Any) -> None:
        """Writes an event, such as a saved checkpoint, as a line of its own."""
        self._write({"kind": kind, **fields}, self._clock())

    def close(self) -> None:
        """Closes the files. What was collected since the last flush is dropped."""
        for writer in self._writers:
            writer.close()
        self._lines.close()

    def _take(self, interval: float) -> dict[str, float]:
        values = {name: float(value) for name, value in self._gauges.items()}
        for name, amount in self._counts.items():
            self._totals[name] += amount
            values[f"{name}_per_second"] = amount / interval if interval > 0 else math.nan
            self._counts[name] = 0.0
        values |= self._totals
        for who, seconds in self._waits.items():
            # A wait counts where it ends, which may be an interval later than most of it.
            values[f"{who}_waits_share"] = min(1.0, seconds / interval) if interval > 0 else 0.0
            self._waits[who] = 0.0
        for name, distribution in self._distributions.items():
            values[name] = distribution.total / distribution.count
            if name in DISTRIBUTIONS:
                values |= _percentiles(name, distribution.values)
            elif name in EXTREMES:
                low, high = min(distribution.values), max(distribution.values)
                values |= {f"{name}_min": low, f"{name}_max": high}
        self._distributions.clear()
        return values

    def _write(self, fields: dict[str, Any], now: float) -> None:
        times = {"time_seconds": time.time(), "elapsed_seconds": now - self._started}
        self._lines.append({**times, **fields})


def _growth(sums: dict[str, float], taken: dict[str, float]) -> Iterable[tuple[str, float]]:
    """By how much each sum has grown since it was taken; takes it."""
    # Copied at once: the thread whose they are may add a name meanwhile.
    for name, amount in list(sums.items()):
        yield name, amount - taken[name]
        taken[name] = amount


def elapsed_seconds(workdir: Path) -> float:
    """What the processes of a run took so far, by its last whole line of metrics; 0 without one."""
    path = workdir / METRICS
    if not path.exists():
        return 0.0
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        lines = file.read().split(b"\n")
    for text in reversed(lines):
        with contextlib.suppress(ValueError):
            line = json.loads(text)
            if isinstance(line, dict) and "elapsed_seconds" in line:
                return float(line["elapsed_seconds"])
    return 0.0


def _percentiles(name: str, values: Iterable[float]) -> dict[str, float]:
    array = np.asarray(list(values), np.float64)
    results = np.percentile(array, PERCENTILES) if np.isfinite(array).all() else [math.nan] * 3
    return {
        f"{name}_p{rank}": float(result) for rank, result in zip(PERCENTILES, results, strict=True)
    }


def _tag(name: str) -> str:
    # TensorBoard groups tags by what precedes the slash.
    return name if "/" in name else f"{group(name)}/{name}"
