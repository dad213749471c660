"""A recording of a learner's input in lock step, and of how it answered: a file of equal records.

    one line of JSON     seedrl_recording: 2, num_slots: N, env_spec, streams [N]
    record 0, 1, 2, ...  a step payload and an actions payload, as they would cross the wire if one
                         group had all N slots: group 0, and the record's number as sequence

`streams` names the slots' streams of experience, for the learner that resumes it: a recording ends
where a stream is cut. A record counts once it is complete, so whenever the learner
dies, all but the last one that it was writing can be read.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from seedrl.errors import CheckpointError
from seedrl.specs import EnvSpec
from seedrl.types import TimeStep
from seedrl.wire.framing import WireError
from seedrl.wire.payload import ActionLayout, StepLayout, pack_actions, read_header
from seedrl.wire.spec import encode_spec, saved_spec

_FORMAT = 2
_LONGEST_HEADER_BYTES = 2**24


class Record(NamedTuple):
    """A batch: the time step of all N slots, and the actions that followed.

    Leaves are `[N, ...]`, actions `[N] int32` or `[N, *shape] float32`.
    """

    timestep: TimeStep
    actions: np.ndarray


class RecordingHeader(NamedTuple):
    """What is recorded: of which environment, and the stream of each slot."""

    spec: EnvSpec
    streams: Sequence[int]

    def encode(self) -> bytes:
        """The file's first line."""
        fields = {
            "seedrl_recording": _FORMAT,
            "num_slots": len(self.streams),
            "env_spec": encode_spec(self.spec),
            "streams": [int(stream) for stream in self.streams],
        }
        return json.dumps(fields).encode() + b"\n"


class RecordLayout:
    """Where everything lies in the records of `num_slots` slots of `spec`. Immutable."""

    def __init__(self, spec: EnvSpec, num_slots: int) -> None:
        self._steps = StepLayout(spec, num_slots)
        self._actions = ActionLayout(spec.action, num_slots)
        self.num_bytes = self._steps.num_bytes + self._actions.num_bytes

    def pack(self, number: int, record: Record) -> bytes:
        """The bytes of record `number`. Raises WireError if an array does not fit the spec."""
        steps = self._steps.pack(0, number, record.timestep)
        return steps + pack_actions(0, number, record.actions)

    def unpack(self, number: int, data: bytes) -> Record:
        """The record in `data`, read-only views of it. Raises WireError if it is not `number`."""
        view = memoryview(data)
        start = self._steps.num_bytes
        header, actions = self._actions.unpack(view[start:])
        for found in (read_header(data).sequence, header.sequence):
            if found != number:
                raise WireError(f"expected record {number} in a recording, got {found}")
        return Record(self._steps.unpack(view[:start]), actions)


class Recording:
    """A recording opened for reading. It may still grow. Owns the file; used by one thread.

    Raises WireError if the file is not a recording, OSError if it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("rb")
        try:
            line = self._file.readline(_LONGEST_HEADER_BYTES)
            self.header = _decode(line, path)
            self._start = len(line)
            self._layout = RecordLayout(self.header.spec, self.num_slots)
        except BaseException:
            self.close()
            raise

    @property
    def num_slots(self) -> int:
        """Slots of each record."""
        return len(self.header.streams)

    @property
    def num_records(self) -> int:
        """Complete records in the file now."""
        size = os.fstat(self._file.fileno()).st_size
        return (size - self._start) // self._layout.num_bytes

    def read(self, number: int) -> Record | None:
        """Record `number`, or None if it is not complete. Raises WireError if it is damaged."""
        size = self._layout.num_bytes
        data = os.pread(self._file.fileno(), size, self._start + number * size)
        return None if len(data) < size else self._layout.unpack(number, data)

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _decode(line: bytes, path: Path) -> RecordingHeader:
    try:
        fields = json.loads(line)
        if fields["seedrl_recording"] != _FORMAT:
            raise ValueError(f"format {fields['seedrl_recording']}")
        header = RecordingHeader(saved_spec(fields["env_spec"]), fields["streams"])
        # There is one way to write a header: the records begin where it says.
        if not header.streams or header.encode() != line:
            raise ValueError("a header of another form")
    except (KeyError, TypeError, ValueError, CheckpointError) as error:
        raise WireError(
            f"expected a recording of format {_FORMAT}, got {path}: {type(error).__name__}: {error}"
        ) from error
    return header
