"""Metrics of a run: collected from all threads, written once per interval.

A line of `metrics.jsonl` is a JSON object with `kind`, `time_seconds` (Unix time) and
`elapsed_seconds` (of the run); numbers that are not finite are null. The table of `metric_table`
lists the names in the line of an interval, whose kind is `metrics`, and other kinds of lines.

After a resume the lines continue below those of the earlier process; counts and
`elapsed_seconds` continue from the checkpoint. Later lines remain, so these and `env_steps` may
step back once; TensorBoard hides those lines.
"""

import math
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from learner.report.json_lines import JsonLines
from learner.report.metric_table import METRICS as TABLE
from learner.report.metric_table import PERCENTILES, group
from learner.report.writers import EventFile, WeightsAndBiases
from seedrl.run_files import METRICS

Role = Literal["training", "evaluation"]

_KINDS = {metric.name: metric.kind for metric in TABLE}
_NUM_RANKED = 8192  # values of which percentiles are
_NUM_HELD = 2**16  # many times what happens in an interval
_ELAPSED = "elapsed_seconds"


class Tally:
    """What one thread counts and measures at each batch: plain containers, so that it is cheap.

    Only that thread adds; at each report the main thread takes what is new (`Metrics.collect`).

    Attributes:
      counted: by name as `Metrics.count` takes them; each only grows.
      measured: values by name; of more than fits, the last ones.
      waited: seconds by the side that waited; each only grows.
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
    """

    def __init__(
        self,
        workdir: Path,
        *,
        clock: Callable[[], float] = time.monotonic,
        totals: Mapping[str, float] | None = None,
        purge_step: int = 0,
        mirrors: Sequence[WeightsAndBiases] = (),
    ):
        """Appends to the files in `workdir`.

        Args:
          totals: counts and time of earlier processes, as `totals` gave them.
          purge_step: TensorBoard hides the values of earlier processes for this many environment
            steps or more, because the run did not resume from there.
          mirrors: take the same scalars as TensorBoard; closed with the files.
        """
        workdir.mkdir(parents=True, exist_ok=True)
        self._clock = clock
        counted = dict(totals or {})
        self._started = clock() - counted.pop(_ELAPSED, 0.0)
        self._flushed = clock()
        self._lock = threading.Lock()
        self._totals: dict[str, float] = defaultdict(float, counted)
        self._counts: dict[str, float] = defaultdict(float)
        self._gauges: dict[str, float] = {}
        self._waits: dict[str, float] = defaultdict(float)
        self._values: dict[str, deque[float]] = defaultdict(partial(deque, maxlen=_NUM_HELD))
        # Each with what was taken of it before.
        self._tallies: list[tuple[Tally, Tally]] = []
        self._lines = JsonLines(workdir / METRICS)
        self._writers: list[EventFile | WeightsAndBiases] = [
            EventFile(workdir / "tb", purge_step=purge_step),
            *mirrors,
        ]

    def tally(self) -> Tally:
        """A tally that one thread fills; cheaper for it than calls of this object."""
        tally = Tally()
        self._tallies.append((tally, Tally()))
        return tally

    def collect(self) -> None:
        """Takes what is new in all tallies. For the thread that flushes, which does it too."""
        with self._lock:
            for tally, taken in self._tallies:
                for name, amount in _growth(tally.counted, taken.counted):
                    self._counts[name] += amount
                for who, seconds in _growth(tally.waited, taken.waited):
                    self._waits[who] += seconds
                # Copied at once: the tally's thread may add a name meanwhile, and values at the
                # end, of which this takes as many as there are now from the front.
                for name, values in list(tally.measured.items()):
                    for _ in range(len(values)):
                        self._values[name].append(values.popleft())
                for _ in range(len(tally.episodes)):
                    self._take_episode(*tally.episodes.popleft())

    def _take_episode(self, role: Role, episode_return: float, length: int) -> None:
        self._totals[f"episodes/{role}"] += 1
        self._values[f"return/{role}"].append(episode_return)
        self._values[f"length/{role}"].append(length)

    def count(self, name: str, amount: float = 1) -> None:
        """Adds to a count, of which total and rate are reported."""
        with self._lock:
            self._counts[name] += amount

    def gauge(self, name: str, value: float) -> None:
        """Sets a value; the last one is reported until there is a new one."""
        with self._lock:
            self._gauges[name] = value

    def flush(self, *, env_steps: int, updates: int) -> dict[str, float]:
        """Writes the metrics of the interval since the last flush, and returns them.

        Both counts are of the whole run; `env_steps` is the x axis in TensorBoard.
        """
        self.collect()
        with self._lock:
            now = self._clock()
            values = self._take(now - self._flushed)
            self._flushed = now
        values |= {"env_steps": float(env_steps), "updates": float(updates)}
        values[_ELAPSED] = now - self._started
        self._write({"kind": "metrics", **values}, now)
        finite = {_tag(name): value for name, value in values.items() if math.isfinite(value)}
        for writer in self._writers:
            writer.add(finite, env_steps)
        return values

    def totals(self) -> dict[str, float]:
        """Total of every count in the whole run, by its name, and its time."""
        self.collect()
        with self._lock:
            counted = dict(self._totals)
            for name, amount in self._counts.items():
                counted[name] = counted.get(name, 0.0) + amount
        return {**counted, _ELAPSED: self._clock() - self._started}

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
        for name, measured in self._values.items():
            values |= _summarized(name, list(measured))
        self._values.clear()
        return values

    def _write(self, fields: dict[str, Any], now: float) -> None:
        times = {"time_seconds": time.time(), _ELAPSED: now - self._started}
        self._lines.append({**times, **fields})


def _summarized(name: str, values: list[float]) -> Iterator[tuple[str, float]]:
    yield name, sum(values) / len(values)
    kind = _KINDS.get(name)
    if kind == "extremes":
        yield f"{name}_min", min(values)
        yield f"{name}_max", max(values)
    if kind == "distribution":
        array = np.asarray(values[-_NUM_RANKED:], np.float64)
        is_finite = np.isfinite(array).all()
        found = np.percentile(array, PERCENTILES) if is_finite else [math.nan] * 3
        for rank, value in zip(PERCENTILES, found, strict=True):
            yield f"{name}_p{rank}", float(value)


def _growth(sums: dict[str, float], taken: dict[str, float]) -> Iterable[tuple[str, float]]:
    # Copied at once: the tally's thread may add a name meanwhile.
    for name, amount in list(sums.items()):
        yield name, amount - taken[name]
        taken[name] = amount


def _tag(name: str) -> str:
    # TensorBoard groups tags by what precedes the slash.
    return name if "/" in name else f"{group(name)}/{name}"
