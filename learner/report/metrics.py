"""Metrics of a run: collected from all threads, written once per interval.

A line of `metrics.jsonl` is a JSON object with `kind`, `time_seconds` (Unix time) and
`elapsed_seconds` (of the run); `metric_table` lists the others. After a resume counts and time
continue from the checkpoint below the lines of the earlier process, so `env_steps` may step back.
"""

import logging
import math
import os
import queue
import socket
import struct
import threading
import time
import uuid
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.summary_pb2 import Summary
from tensorboardX.record_writer import masked_crc32c

from learner.report.json_lines import JsonLines, replace_file
from learner.report.metric_table import METRICS as TABLE
from learner.report.metric_table import PERCENTILES, group
from seedrl.run_files import METRICS, WANDB_ID, make_folder, read_regular

Role = Literal["training", "evaluation"]

_KINDS = {metric.name: metric.kind for metric in TABLE}
_NUM_RANKED = 8192  # values of which percentiles are
_NUM_HELD = 2**16  # many times what happens in an interval
_ELAPSED = "elapsed_seconds"
_CLOSE_SECONDS = 10.0
_STEP = "balance/env_steps"

_logger = logging.getLogger(__name__)


class Tally:
    """What one thread counts and measures at each batch: plain containers, so that it is cheap."""

    # Only that thread adds; at each report the main thread takes what is new (`Metrics.collect`).

    def __init__(self) -> None:
        # By name as `Metrics.count` takes them; each only grows.
        self.counted: dict[str, float] = defaultdict(float)
        # Values by name; of more than fits, the last ones.
        self.measured: dict[str, deque[float]] = defaultdict(partial(deque, maxlen=_NUM_HELD))
        # Seconds by side and stage, `acting_act` say (see `learner.report.stages`).
        self.spent: dict[str, float] = defaultdict(float)
        # Role, sum of rewards and length of each that has ended.
        self.episodes: deque[tuple[Role, float, int]] = deque()


class Metrics:
    """Collects from any thread; `write`, `flush` and `close` are called by one.

    So no other thread waits for the disk.
    """

    # Owns `workdir/metrics.jsonl` and the TensorBoard files in `workdir/tb`. A disk that refuses a
    # line is reported as an error, and the run continues.

    def __init__(
        self,
        workdir: Path,
        *,
        clock: Callable[[], float] = time.monotonic,
        totals: Mapping[str, float] | None = None,
        purge_step: int = 0,
        mirrors: "Sequence[WeightsAndBiases]" = (),
    ):
        """`totals`: counts and time of earlier processes, as `totals` gave them."""
        # TensorBoard hides the values of earlier processes from `purge_step` environment steps on,
        # because the run did not resume from there. `mirrors` are closed with the files.
        workdir.mkdir(parents=True, exist_ok=True)
        self._clock = clock
        counted = dict(totals or {})
        self._started = clock() - counted.pop(_ELAPSED, 0.0)
        self._flushed = clock()
        self._lock = threading.Lock()
        self._totals: dict[str, float] = defaultdict(float, counted)
        self._counts: dict[str, float] = defaultdict(float)
        self._gauges: dict[str, float] = {}
        self._spent: dict[str, float] = defaultdict(float)
        self._values: dict[str, deque[float]] = defaultdict(partial(deque, maxlen=_NUM_HELD))
        # Each with what was taken of it before.
        self._tallies: list[tuple[Tally, Tally]] = []
        # Environment steps with values that belong to them, however much later they are known.
        self._points: list[tuple[int, dict[str, float]]] = []
        self._lines = JsonLines(workdir / METRICS)
        # Lines that wait to be written. Any thread appends, which is atomic.
        self._records: deque[dict[str, Any]] = deque()
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
                for stage, seconds in _growth(tally.spent, taken.spent):
                    self._spent[stage] += seconds
                # Copied at once: the tally's thread may add a name meanwhile, and values at the
                # end, of which this takes as many as there are now from the front.
                for name, values in list(tally.measured.items()):
                    for _ in range(len(values)):
                        self._values[name].append(values.popleft())
                for _ in range(len(tally.episodes)):
                    role, episode_return, length = tally.episodes.popleft()
                    self._totals[f"episodes/{role}"] += 1
                    if role == "training":  # a round of evaluation is a line of its own
                        self._values["return/training"].append(episode_return)
                        self._values["length/training"].append(length)

    def count(self, name: str, amount: float = 1) -> None:
        """Adds to a count, of which total and rate are reported."""
        with self._lock:
            self._counts[name] += amount

    def gauge(self, name: str, value: float) -> None:
        """Sets a value; the last one is reported until there is a new one."""
        with self._lock:
            self._gauges[name] = value

    def point(self, env_steps: int, values: Mapping[str, float]) -> None:
        """Values for charts at a step of their own, which may be earlier than the present one."""
        with self._lock:
            self._points.append((env_steps, dict(values)))

    def flush(self, *, env_steps: int, updates: int) -> dict[str, float]:
        """Writes the metrics of the interval since the last flush, and returns them."""
        # Both counts are of the whole run; `env_steps` is the x axis in TensorBoard.
        self.collect()
        with self._lock:
            now = self._clock()
            values = self._take(now - self._flushed)
            self._flushed = now
            points, self._points = self._points, []
        values |= {"env_steps": float(env_steps), "updates": float(updates)}
        values[_ELAPSED] = now - self._started
        self._take_line({"kind": "metrics", **values}, now)
        self.write()
        # TensorBoard groups tags by what precedes the slash.
        finite = {
            name if "/" in name else f"{group(name)}/{name}": value
            for name, value in values.items()
            if math.isfinite(value)
        }
        # Without the lock: none of them may keep the threads that count waiting.
        for writer in self._writers:
            # In the order of their steps: points belong to steps that are past.
            for step, scalars in [*points, (env_steps, finite)]:
                writer.add(scalars, step)
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
        """Takes an event, such as a saved checkpoint, as a line of its own; see `write`."""
        self._take_line({"kind": kind, **fields}, self._clock())

    def write(self) -> None:
        """Writes what was recorded. For the thread that flushes, which does it too."""
        while self._records:
            self._lines.append(self._records.popleft())

    def close(self) -> None:
        """Closes the files. What was counted or measured since the last flush is dropped."""
        self.write()
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
        for stage, seconds in self._spent.items():
            # A stage counts where it ends, which may be an interval later than most of it.
            share = seconds / interval if interval > 0 else 0.0
            values[f"{stage}_share"] = min(1.0, max(0.0, share))
            self._spent[stage] = 0.0
        for name, measured in self._values.items():
            values |= _summarized(name, list(measured))
        self._values.clear()
        return values

    def _take_line(self, fields: dict[str, Any], now: float) -> None:
        times = {"time_seconds": time.time(), _ELAPSED: now - self._started}
        self._records.append({**times, **fields})


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


# Where scalars go besides `metrics.jsonl`: each is used by one thread, and never blocks it.


class EventFile:
    """A new file of events in a folder where TensorBoard looks."""

    # Not tensorboardX's writer: its thread dies on a full disk, and the thousandth value after that
    # blocks for ever. Here a disk that refuses values ends the file, with one warning: half a
    # record would hide all that follow. `metrics.jsonl` has the values, too.

    def __init__(self, folder: Path, *, purge_step: int):
        """`purge_step`: TensorBoard hides the values of earlier files from this step on."""
        make_folder(folder)
        name = f"events.out.tfevents.{time.time_ns() // 10**9}.{socket.gethostname()}.{os.getpid()}"
        self._file = (folder / name).open("wb", buffering=0)
        start = SessionLog(status=SessionLog.START)
        # TensorBoard needs it before anything else; it waits until there is a value, so that a run
        # that is refused hides no values of the one before.
        self._head = _record(file_version="brain.Event:2") + _record(
            step=purge_step, session_log=start
        )

    def add(self, scalars: Mapping[str, float], step: int) -> None:
        if self._file.closed:
            return
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
        data = self._head + _record(step=step, summary=Summary(value=values))
        self._head = b""
        try:
            is_written = self._file.write(data) == len(data)
        except OSError:
            is_written = False
        if not is_written:
            _logger.warning("no more goes to %s: its disk may be full", self._file.name)
            self._file.close()

    def close(self) -> None:
        self._file.close()


def _record(**event: Any) -> bytes:
    """An event as the file has it: length, checksum of the length, event, checksum of the event."""
    data: bytes = Event(wall_time=time.time(), **event).SerializeToString()
    length = struct.pack("<Q", len(data))
    length_sum, data_sum = (struct.pack("<I", masked_crc32c(part)) for part in (length, data))
    return b"".join((length, length_sum, data, data_sum))


class WeightsAndBiases:
    """Mirrors scalars to a project. Only its own thread waits for the network."""

    # A run that is resumed continues there too. If the service cannot be reached or refuses, that
    # is one warning, and the run continues: `metrics.jsonl` has the same values.

    def __init__(self, project: str, workdir: Path, config: Mapping[str, Any]):
        """`config`: the configuration by field, by which runs are compared there."""
        self._has_ended = False
        self._queue: queue.SimpleQueue[dict[str, float] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=self._run, args=(project, workdir, dict(config)), name="wandb", daemon=True
        )
        self._thread.start()

    def add(self, scalars: Mapping[str, float], step: int) -> None:
        # No `step`: environment steps may step back, and it drops such values.
        if not self._has_ended:  # else the queue would grow for ever
            self._queue.put({**scalars, _STEP: step})

    def close(self) -> None:
        """Waits ten seconds at most until all is sent."""
        self._queue.put(None)
        self._thread.join(_CLOSE_SECONDS)

    def _run(self, project: str, workdir: Path, config: dict[str, Any]) -> None:
        try:
            import wandb

            run = wandb.init(
                project=project,
                name=workdir.name,
                id=_identity(workdir),
                dir=str(workdir),
                resume="allow",
                # The terminal is ours.
                settings=wandb.Settings(console="off", silent=True),
            )
            run.config.update(config, allow_val_change=True)
            run.define_metric("*", step_metric=_STEP)
            while (scalars := self._queue.get()) is not None:
                run.log(scalars)
            run.finish()
        except Exception as error:
            self._has_ended = True
            _logger.warning("nothing more goes to Weights & Biases: %s", error)


def _identity(workdir: Path) -> str:
    """The run's id there, the same in all of its sessions."""
    path = workdir / WANDB_ID
    try:
        return read_regular(path).decode().strip()
    except FileNotFoundError:
        identity = uuid.uuid4().hex[:12]
        replace_file(path, identity + "\n")
        return identity
