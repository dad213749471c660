"""Scalars in a file that TensorBoard reads, written at once and by nobody else.

The writer of tensorboardX leaves that to a thread of its own behind a bounded queue: on a full disk
the thread dies, and whoever adds the thousandth value after that waits for ever.
"""

import contextlib
import logging
import os
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.summary_pb2 import Summary
from tensorboardX.record_writer import masked_crc32c
from tensorboardX.summary import hparams, text

from learner.reporting.writers.writer import Hyperparameter

_VERSION = "brain.Event:2"

_logger = logging.getLogger(__name__)


class EventFile:
    """A new file of events in a folder. Owned by one thread.

    What the disk refuses is dropped, with one warning until it takes something again: the same
    values are in `metrics.jsonl`.

    Args:
      folder: where TensorBoard looks.
      purge_step: TensorBoard hides what earlier files have for this step or later ones.
    """

    def __init__(self, folder: Path, *, purge_step: int):
        folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{time.time_ns() // 10**9}.{socket.gethostname()}.{os.getpid()}"
        self._file = (folder / name).open("wb", buffering=0)
        self._size = 0
        self._is_refused = False
        # Nothing that follows can be read without it, so it waits until the disk takes it. Not
        # written before there is a value: a run that is refused hides nothing of the one before.
        self._head = _record(Event(wall_time=time.time(), file_version=_VERSION)) + _record(
            Event(
                wall_time=time.time(),
                step=purge_step,
                session_log=SessionLog(status=SessionLog.START),
            )
        )

    def add(self, scalars: Mapping[str, float], step: int) -> None:
        """Writes scalars by their tags."""
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
        event = Event(wall_time=time.time(), step=step, summary=Summary(value=values))
        self._append(_record(event))

    def describe(
        self, hyperparameters: Mapping[str, Hyperparameter], scores: Sequence[str]
    ) -> None:
        """Writes what the run was configured with, to compare runs by.

        Args:
          hyperparameters: by name; shown in the table of TensorBoard's HParams, and as text.
          scores: tags of the scalars whose last values stand beside them.
        """
        rows = [f"| {name} | {value} |" for name, value in hyperparameters.items()]
        table = "\n".join(["| field | value |", "|---|---|", *rows])
        # That of the session's end is left out: nothing is shown differently for it.
        experiment, start, _ = hparams(dict(hyperparameters), dict.fromkeys(scores))
        for summary in (experiment, start, text("config", table)):
            self._append(_record(Event(wall_time=time.time(), summary=summary)))

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _append(self, records: bytes) -> None:
        data = self._head + records
        try:
            written = self._file.write(data)
            if written != len(data):
                raise OSError(f"wrote {written} of {len(data)} bytes")
        except OSError as error:
            # Half a record would hide all that follow. Less than was there always fits.
            with contextlib.suppress(OSError):
                os.ftruncate(self._file.fileno(), self._size)
                os.lseek(self._file.fileno(), self._size, os.SEEK_SET)
            if not self._is_refused:
                _logger.warning("cannot write to %s: %s", self._file.name, error)
            self._is_refused = True
        else:
            self._head = b""
            self._size += len(data)
            self._is_refused = False


def _record(event: Event) -> bytes:
    """An event as the file has it: its length, that one's checksum, itself, its checksum."""
    data: bytes = event.SerializeToString()
    length = struct.pack("<Q", len(data))
    return b"".join(
        (
            length,
            struct.pack("<I", masked_crc32c(length)),
            data,
            struct.pack("<I", masked_crc32c(data)),
        )
    )
