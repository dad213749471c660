"""What was sent to the learner, counted in memory that outlives a SIGKILL."""

import contextlib
import fcntl
import mmap
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from seedrl.wire.seedrl_pb2 import Sent

_MAGIC = int.from_bytes(b"seedrl 1", "little")
_MOST_GROUPS = 1023  # MOST_GROUPS, and those that a learner adds to them
_FIELDS = ("lease", "group", "num_envs", "steps", "answered")
_STEPS, _ANSWERED = 3, 4
_SIZE = 8 * len(_FIELDS) * (1 + _MOST_GROUPS)
# In the first row, behind the magic number: notes for the process that replaces this one, and for
# the one that starts it.
_SERVED, _FINISHED = 1, 2
_EXPECTED = "expected an env server's log of sent steps"


class SentLog:
    """Counts the steps of each group from Assign until a later Assign confirms the report.

    They lie in a file that is mapped into memory: whatever ends the process, the kernel keeps what
    was written, and the next env server with this file reports it. Each count is one aligned 8-byte
    store, which a SIGKILL cannot tear.

    Attributes:
      has_served: whether a step was ever answered under this log, by this process or one before.
    """

    def __init__(self, path: Path | None = None) -> None:
        """Opens the log, which may be an earlier process's; None keeps it in this process.

        Raises ValueError if the file belongs to a running env server or is something else, OSError
        if the disk has no room for it.
        """
        memory = mmap.mmap(-1 if path is None else _locked(path), _SIZE)
        # `[1 + most groups, fields]`, of which the first row says what it is.
        table = np.frombuffer(memory, np.uint64).reshape(-1, len(_FIELDS))
        # A disk may give back what nobody has written: groups and their sizes are of 32 bits.
        if table[0, 0] not in (0, _MAGIC) or (table[1:, 1:3] >= 2**32).any():
            raise ValueError(f"{_EXPECTED}, got {path}")
        table[0, 0] = _MAGIC
        self._notes, self._rows = table[0], table[1:]
        self.has_served = bool(self._notes[_SERVED])
        self._notes[_FINISHED] = 0
        # The same memory: each step is counted twice, and arrays take longer to add one.
        self._counts = table.data.cast("B").cast("Q")
        self._num_open = 0

    def open(self, lease: int, num_envs: Sequence[int]) -> None:
        """Forgets what was reported, and begins to count for the groups of a lease.

        The caller has reported everything: the learner's Assign says that it has arrived.
        """
        self._rows[:] = 0
        for group, size in enumerate(num_envs[:_MOST_GROUPS]):
            self._rows[group] = (0, group, size, 0, 0)
            # Last: a row that says whose it is is complete.
            self._rows[group, 0] = lease
        self._num_open = min(len(num_envs), _MOST_GROUPS)

    def sent(self, group: int) -> None:
        """A step of `group` is about to be sent."""
        if group < self._num_open:
            self._counts[len(_FIELDS) * (1 + group) + _STEPS] += 1

    def answered(self, group: int) -> None:
        """Actions for `group` have arrived."""
        if group < self._num_open:
            self._counts[len(_FIELDS) * (1 + group) + _ANSWERED] += 1

    def note_served(self) -> None:
        """A step was answered: the environments can be built and stepped."""
        self.has_served = True
        self._notes[_SERVED] = 1

    def note_finished(self) -> None:
        """The learner has ended training; see `has_finished`."""
        self._notes[_FINISHED] = 1

    def report(self) -> list[Sent]:
        """Counts of all groups of the lease that was open last."""
        rows = self._rows[self._rows[:, 0] > 0].tolist()
        return [Sent(**dict(zip(_FIELDS, row, strict=True))) for row in rows]


def has_finished(path: Path) -> bool:
    """True if the process with that log has learned of the end of training, however it ended."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(8 * _FINISHED)
        return any(file.read(8))
    return False


def _locked(path: Path) -> int:
    """A descriptor of the file, with room on the disk, that is this process's until it ends."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ValueError(f"expected a log of its own, {path} is another env server's") from error
    if not (size := os.fstat(descriptor).st_size):
        # Or a page that the disk has no room for would be a SIGBUS later.
        try:
            os.posix_fallocate(descriptor, 0, _SIZE)
        except OSError:
            # Of another size a later start would refuse it.
            os.ftruncate(descriptor, 0)
            os.close(descriptor)
            raise
    elif size != _SIZE:
        raise ValueError(f"{_EXPECTED}, got {path}")
    return descriptor
