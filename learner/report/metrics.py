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
from typing import Any

import numpy as np
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.summary_pb2 import Summary
from tensorboardX.record_writer import masked_crc32c

from learner.report.json_lines import JsonLines, replace_file
from learner.report.metric_table import METRICS as TABLE
from learner.report.metric_table import PERCENTILES, group
from seedrl.run_files import METRICS, WANDB_ID, make_folder, read_regular

_KINDS = {metric.name: metric.kind for metric in TABLE}
_NUM_RANKED = 8192  # values of which percentiles are
_NUM_HELD = 2**16  # many times what happens in an interval
_ELAPSED = "elapsed_seconds"
_CLOSE_SECONDS = 10.0
_STEP = "balance/env_steps"

_logger = logging.getLogger(__name__)


class Tally:
    """What one thread counts and measures at each batch: plain containers, so that it is cheap."""

    # Only that thread adds; at each report the main thread takes the values and reads the sums.

    def __init__(self) -> None:
        # By name in the table; each only grows, and its total and rate are reported.
        self.counted: dict[str, float] = defaultdict(float)
        # Values by name; of more than fits, the last ones.
        self.measured: dict[str, deque[float]] = defaultdict(partial(deque, maxlen=_NUM_HELD))
        # Seconds by side and stage, `acting_act` say (see `learner.report.stages`).
        self.spent: dict[str, float] = defaultdict(float)
        # A stage that the thread is in, and since when, if it may last for longer than a report.
        self.under_way: tuple[str, float] | None = None


class Metrics:
    """Collects from any thread; `totals`, `write`, `flush` and `close` are called by one.

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
        self._earlier = dict(totals or {})
        self._started = clock() - self._earlier.pop(_ELAPSED, 0.0)
        # When the last interval ended, and the sums of all tallies then.
        self._flushed = clock()
        self._counted: Mapping[str, float] = {}
        self._spent: Mapping[str, float] = {}
        self._gauges: dict[str, float] = {}
        self._tallies: list[Tally] = []
        # Of the threads that count too rarely to have one of their own; under the lock.
        self._shared = self.tally()
        self._lock = threading.Lock()
        # What any thread appends, which is atomic, and the one that flushes takes from the front:
        # lines, and environment steps with values that belong to them, however late.
        self._records: deque[dict[str, Any]] = deque()
        self._points: deque[tuple[int, dict[str, float]]] = deque()
        self._lines = JsonLines(workdir / METRICS)
        self._writers: list[EventFile | WeightsAndBiases] = [
            EventFile(workdir / "tb", purge_step=purge_step),
            *mirrors,
        ]

    def tally(self) -> Tally:
        """A tally that one thread fills; cheaper for it than calls of this object."""
        self._tallies.append(tally := Tally())
        return tally

    def count(self, name: str, amount: float = 1) -> None:
        """Adds to a count, of which total and rate are reported."""
        with self._lock:
            self._shared.counted[name] += amount

    def gauge(self, name: str, value: float) -> None:
        """Sets a value; the last one is reported until there is a new one."""
        self._gauges[name] = float(value)

    def point(self, env_steps: int, values: Mapping[str, float]) -> None:
        """Values for charts at a step of their own, which may be earlier than the present one."""
        self._points.append((env_steps, dict(values)))

    def record(self, kind: str, /, **fields: Any) -> None:
        """Takes an event, such as a saved checkpoint, as a line of its own; see `write`."""
        times = {"time_seconds": time.time(), _ELAPSED: self._clock() - self._started}
        self._records.append({**times, "kind": kind, **fields})

    def flush(self, *, env_steps: int, updates: int) -> dict[str, float]:
        """Writes the metrics of the interval since the last flush, and returns them."""
        # Both counts are of the whole run; `env_steps` is the x axis in TensorBoard.
        now = self._clock()
        values = self._take(now)
        self._flushed = now
        values |= {"env_steps": float(env_steps), "updates": float(updates)}
        values[_ELAPSED] = now - self._started
        self.record("metrics", **values)
        self.write()
        # TensorBoard groups tags by what precedes the slash.
        finite = {
            name if "/" in name else f"{group(name)}/{name}": value
            for name, value in values.items()
            if math.isfinite(value)
        }
        # In the order of their steps: points belong to steps that are past.
        points = [self._points.popleft() for _ in range(len(self._points))]
        for writer in self._writers:
            for step, scalars in [*points, (env_steps, finite)]:
                writer.add(scalars, step)
        return values

    def totals(self) -> dict[str, float]:
        """Total of every count in the whole run, by its name, and its time."""
        counted = _sum([self._earlier, *(tally.counted for tally in self._tallies)])
        return {**counted, _ELAPSED: self._clock() - self._started}

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

    def _take(self, now: float) -> dict[str, float]:
        seconds = now - self._flushed
        values = self._gauges | self._earlier
        counted = _sum(tally.counted for tally in self._tallies)
        for name, total in counted.items():
            values[name] = self._earlier.get(name, 0.0) + total
            if _KINDS.get(name) != "gauge":
                amount = total - self._counted.get(name, 0.0)
                values[f"{name}_per_second"] = amount / seconds if seconds > 0 else math.nan
        lasting = [tally.under_way for tally in self._tallies]
        spent = _sum(
            [
                *(tally.spent for tally in self._tallies),
                *({stage: now - since} for stage, since in filter(None, lasting)),
            ]
        )
        for stage, total in spent.items():
            # Without `Laps.during` a stage counts where it ends, which may be an interval later
            # than most of it.
            share = (total - self._spent.get(stage, 0.0)) / seconds if seconds > 0 else 0.0
            values[f"{stage}_share"] = min(1.0, max(0.0, share))
        self._counted, self._spent = counted, spent
        measured = defaultdict[str, list[float]](list)
        for tally in self._tallies:
            # Copied at once: the tally's thread may add a name meanwhile, and values at the end,
            # of which this takes as many as there are now from the front.
            for name, new in list(tally.measured.items()):
                measured[name] += [new.popleft() for _ in range(len(new))]
        for name, found in measured.items():
            values |= _summarized(name, found) if found else {}
        return values


def _sum(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total = defaultdict[str, float](float)
    for part in parts:
        for name, amount in list(part.items()):  # copied at once: its thread may add a name
            total[name] += amount
    return dict(total)


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
