"""TensorBoard's files as it reads them, and a disk that is full."""

import contextlib
import resource
import struct
from collections.abc import Iterator
from pathlib import Path

from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.record_writer import masked_crc32c


def events(path: Path) -> Iterator[Event]:
    """The events of a file; fails where TensorBoard would stop to read."""
    data, start = path.read_bytes(), 0
    while start < len(data):
        # Length, its checksum, a serialised event, its checksum.
        length, length_sum = struct.unpack_from("<QI", data, start)
        record = data[start + 12 : start + 12 + length]
        assert length_sum == masked_crc32c(data[start : start + 8])
        assert struct.unpack_from("<I", data, start + 12 + length) == (masked_crc32c(record),)
        yield Event.FromString(record)
        start += length + 16


def first_steps(path: Path) -> list[int]:
    """The steps from which on TensorBoard hides what was there before."""
    return [event.step for event in events(path) if event.session_log.status == SessionLog.START]


def scalars(path: Path) -> list[tuple[int, dict[str, float]]]:
    """The steps that have scalars, and those by their tags."""
    found = [
        (event.step, {value.tag: value.simple_value for value in event.summary.value})
        for event in events(path)
    ]
    return [(step, values) for step, values in found if values]


@contextlib.contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """No file of this process grows beyond `size` bytes: writing raises OSError, as a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
