"""A file of scalars for TensorBoard, written by its owner.

The writer of tensorboardX uses a thread of its own with a bounded queue: on a full disk that thread
dies, and the thousandth value after it blocks for ever.
"""

import contextlib
import logging
import os
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path

from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.summary_pb2 import Summary
from tensorboardX.record_writer import masked_crc32c

_VERSION = "brain.Event:2"

_logger = logging.getLogger(__name__)


class EventFile:
    """A new file of events in a folder. Owned by one thread; a `Writer` of the metrics.

    Values that the disk refuses are dropped, with one warning until it takes some again: they are
    in `metrics.jsonl`, too.

    Args:
      folder: where TensorBoard looks.
      purge_step: TensorBoard hides the values of earlier files for this step and later ones.
    """

    def __init__(self, folder: Path, *, purge_step: int):
        folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{time.time_ns() // 10**9}.{socket.gethostname()}.{os.getpid()}"
        self._file = (folder / name).open("wb", buffering=0)
        self._size = 0
        self._is_refused = False
        # TensorBoard needs it before anything else, so it waits until the disk takes it; and until
        # there is a value, so that a run that is refused hides no values of the one before.
        start = SessionLog(status=SessionLog.START)
        self._head = _record(Event(wall_time=time.time(), file_version=_VERSION)) + _record(
            Event(wall_time=time.time(), step=purge_step, session_log=start)
        )

    def add(self, scalars: Mapping[str, float], step: int) -> None:
        """Writes scalars by their tags."""
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
        event = Event(wall_time=time.time(), step=step, summary=Summary(value=values))
        self._append(_record(event))

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
            # Half a record would hide all that follow. Cutting the file always succeeds.
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
    """An event as the file has it: length, checksum of the length, event, checksum of the event."""
    data: bytes = event.SerializeToString()
    length = struct.pack("<Q", len(data))
    length_sum, data_sum = (struct.pack("<I", masked_crc32c(part)) for part in (length, data))
    return b"".join((length, length_sum, data, data_sum))
