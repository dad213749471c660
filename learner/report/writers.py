"""Where a run's scalars go besides `metrics.jsonl`: TensorBoard, and Weights & Biases.

Each has `add(scalars by tag, step)` and `close()`, is used by one thread, and never blocks it.
"""

import logging
import os
import queue
import socket
import struct
import threading
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.summary_pb2 import Summary
from tensorboardX.record_writer import masked_crc32c

from seedrl import run_files

_CLOSE_SECONDS = 10.0
_STEP = "balance/env_steps"  # is among the scalars of every interval

_logger = logging.getLogger(__name__)


class EventFile:
    """A new file of events in a folder where TensorBoard looks.

    Not tensorboardX's writer: its thread dies on a full disk, and the thousandth value after that
    blocks for ever. Here values that the disk refuses are dropped, with one warning until it takes
    some again; `metrics.jsonl` has them, too.
    """

    def __init__(self, folder: Path, *, purge_step: int):
        """`purge_step`: TensorBoard hides the values of earlier files from this step on."""
        folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{time.time_ns() // 10**9}.{socket.gethostname()}.{os.getpid()}"
        self._file = (folder / name).open("wb", buffering=0)
        self._size = 0
        self._is_refused = False
        start = SessionLog(status=SessionLog.START)
        # TensorBoard needs it before anything else, so it waits until the disk takes it; and until
        # there is a value, so that a run that is refused hides no values of the one before.
        self._head = _record(file_version="brain.Event:2") + _record(
            step=purge_step, session_log=start
        )

    def add(self, scalars: Mapping[str, float], step: int) -> None:
        """Writes scalars by their tags."""
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
        data = self._head + _record(step=step, summary=Summary(value=values))
        # Half a record would hide all that follow: what an earlier call left is written over.
        self._file.seek(self._size)
        try:
            written = self._file.write(data)
        except OSError:
            written = 0
        if written == len(data):
            self._head, self._size, self._is_refused = b"", self._size + len(data), False
        elif not self._is_refused:
            self._is_refused = True
            _logger.warning("cannot write to %s: its disk may be full", self._file.name)

    def close(self) -> None:
        """Closes the file, without half a record at its end."""
        self._file.truncate(self._size)
        self._file.close()


def _record(**event: Any) -> bytes:
    """An event as the file has it: length, checksum of the length, event, checksum of the event."""
    data: bytes = Event(wall_time=time.time(), **event).SerializeToString()
    length = struct.pack("<Q", len(data))
    length_sum, data_sum = (struct.pack("<I", masked_crc32c(part)) for part in (length, data))
    return b"".join((length, length_sum, data, data_sum))


class WeightsAndBiases:
    """Mirrors scalars to a project. Only its own thread waits for the network.

    A run that is resumed continues there too. If the service cannot be reached or refuses, that is
    one warning, and the run continues: `metrics.jsonl` has the same values.
    """

    def __init__(self, project: str, workdir: Path, config: Mapping[str, Any]):
        """`config`: the configuration by field, by which runs are compared there."""
        self._has_ended = False
        self._queue: queue.SimpleQueue[dict[str, float] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=self._run, args=(project, workdir, dict(config)), name="wandb", daemon=True
        )
        self._thread.start()

    def add(self, scalars: Mapping[str, float], step: int) -> None:
        """Sends scalars by their tags."""
        # No `step`: after a resume environment steps may step back once; it drops such values.
        if not self._has_ended:  # else the queue would grow for ever
            self._queue.put(dict(scalars))

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
    path = workdir / run_files.WANDB_ID
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        identity = uuid.uuid4().hex[:12]
        path.write_text(identity + "\n")
        return identity
