"""Records what a learner in lock step is sent, and how it answers, in its run folder."""

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from learner.serving.core import Batch
from seedrl import run_files
from seedrl.config import Config
from seedrl.errors import CheckpointError
from seedrl.specs import EnvSpec
from seedrl.types import TimeStep
from seedrl.wire.framing import WireError
from seedrl.wire.recording import Record, Recording, RecordingHeader, RecordLayout

_logger = logging.getLogger(__name__)


class Recorder:
    """Writes batches to a recording as they are answered. Owned by the thread that acts."""

    # What is there already and arrives again, as in a run that is resumed and played its own
    # recording, stays as it is, so that it may be read at the same time; from the first difference
    # on it is replaced. Where a stream is cut, the recording ends; the run does not. A disk that
    # takes no more ends the run, which is resumed with its recording.

    def __init__(self, path: Path, spec: EnvSpec, *, num_slots: int, position: int):
        """`position`: number of the first batch to be recorded. Raises CheckpointError."""
        self._path = path
        self._spec = spec
        self._layout = RecordLayout(spec, num_slots)
        self._header = _header(path, spec, num_slots, position)
        self._start = 0 if self._header is None else len(self._header.encode())
        self._is_ended = False
        self._next = position  # number of the next batch
        path.touch()
        self._file = path.open("r+b", buffering=0)

    def append(self, batch: Batch, actions: np.ndarray) -> None:
        """Takes a batch of all slots, in their order, and its actions, `[N, ...]`."""
        if self._is_ended:
            return
        self._next = batch.number
        streams = batch.streams.tolist()
        if batch.number == 0 and (self._header is None or self._header.streams != streams):
            self._header = RecordingHeader(self._spec, streams)
            line = self._header.encode()
            self._start = len(line)
            os.ftruncate(self._file.fileno(), 0)
            self._write(line, 0)
        assert self._header is not None
        place = self._start + batch.number * self._layout.num_bytes
        if self._header.streams != streams:
            self._end("an env server was lost, or the run resumed with new environments")
            return
        data = self._layout.pack(batch.number, Record(_timestep(self._spec, batch), actions))
        descriptor = self._file.fileno()
        if os.pread(descriptor, len(data), place) != data:
            os.ftruncate(descriptor, place)
            self._write(data, place)
        self._next += 1

    def sync(self) -> None:
        """Returns when all that was appended is on disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()

    def _write(self, data: bytes, place: int) -> None:
        written = os.pwrite(self._file.fileno(), data, place)
        if written != len(data):
            raise OSError(f"{self._path}: expected to write {len(data)} bytes, wrote {written}")

    def _end(self, reason: str) -> None:
        self._is_ended = True
        place = self._start + self._next * self._layout.num_bytes
        if os.fstat(self._file.fileno()).st_size > place:
            os.ftruncate(self._file.fileno(), place)
        _logger.warning(
            "the recording %s ends before batch %d: %s; what follows cannot be played back",
            self._path,
            self._next,
            reason,
        )


@contextlib.contextmanager
def open_recorder(
    config: Config, workdir: Path, spec: EnvSpec, position: int
) -> Iterator[Recorder | None]:
    """The recorder of a run whose next batch is number `position`; None if it does not record."""
    if not config.learning.record:
        yield None
        return
    slots = config.serving.training_slots
    recorder = Recorder(workdir / run_files.RECORDING, spec, num_slots=slots, position=position)
    with contextlib.closing(recorder):
        yield recorder


def _header(path: Path, spec: EnvSpec, num_slots: int, position: int) -> RecordingHeader | None:
    try:
        with Recording(path) as recording:
            fits = recording.header.spec == spec and recording.num_slots == num_slots
            if fits and recording.num_records >= position:
                return recording.header
            problem = f"got {recording.num_records} records of {recording.num_slots} slots"
    except (OSError, WireError) as error:
        problem = f"got none: {error}"
    if position:
        raise CheckpointError(
            f"{path}: expected a recording of {position} batches of {num_slots} slots, which the "
            f"checkpoint resumes from, {problem}; resume without learning.record, or start a new "
            "workdir"
        )
    return None


def _timestep(spec: EnvSpec, batch: Batch) -> TimeStep:
    """The rows of all groups in slot order, in the dtypes of the wire."""

    def gather(leaves: list[np.ndarray]) -> np.ndarray:
        rows = np.empty((len(batch.slots), *leaves[0].shape[1:]), leaves[0].dtype)
        for where, leaf in zip(batch.rows, leaves, strict=True):
            rows[where] = leaf
        return rows

    steps = [item.timestep for item in batch.pending]
    observations = zip(*(spec.flatten(step.observation) for step in steps), strict=True)
    return TimeStep(
        step_type=gather([step.step_type for step in steps]),
        reward=gather([step.reward for step in steps]),
        discount=gather([step.discount for step in steps]),
        observation=spec.unflatten([gather(list(leaves)) for leaves in observations]),
    )
