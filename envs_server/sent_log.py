"""What was sent to the learner, counted in memory that outlives a SIGKILL."""

import contextlib
import fcntl
import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from seedrl.wire.seedrl_pb2 import Sent

_MAGIC = int.from_bytes(b"seedrl 1", "little")
_MOST_GROUPS = 1023  # MOST_GROUPS, and those that a learner adds to them
_FIELDS = ("lease", "group", "num_envs", "steps", "answered")
_LEASE, _GROUP, _NUM_ENVS, _STEPS, _ANSWERED = range(len(_FIELDS))
# In the first row, behind the magic number: notes for the process that replaces this one, and for
# the one that starts it.
_SERVED, _FINISHED = 1, 2


class SentLog:
    """Counts the steps of each group from Assign until a later Assign confirms the report.

    The counts lie in a file that is mapped into memory: whatever ends the process, the kernel keeps
    what was written, so that the next env server with this file can report it. Each count is one
    aligned 8-byte store, which a SIGKILL cannot tear. Each group's counts are one thread's.

    Attributes:
      has_served: whether a step was ever answered under this log, by this process or one before.
    """

    def __init__(self, path: Path | None = None) -> None:
        """Opens the log, which may be an earlier process's; None keeps it in this process.

        Raises ValueError if the file belongs to a running env server or is something else, OSError
        if the disk has no room for it.
        """
        self._lock = -1
        try:
            table = self._open_table(path)
        except BaseException:
            if self._lock >= 0:
                os.close(self._lock)
            raise
        self._notes, self._rows = table[0], table[1:]
        self.has_served = bool(self._notes[_SERVED])
        self._notes[_FINISHED] = 0
        # The same memory: each step is counted twice, and arrays take longer to add one.
        self._counts = table.data.cast("B").cast("Q")
        self._num_open = 0

    def _open_table(self, path: Path | None) -> np.ndarray:
        """`[1 + most groups, fields] uint64`, of which the first row says what it is."""
        size = 8 * len(_FIELDS) * (1 + _MOST_GROUPS)
        if path is None:
            memory = mmap.mmap(-1, size)
        else:
            with path.open("a+b") as file:
                self._lock = _lock(os.dup(file.fileno()), path)
                length = os.fstat(file.fileno()).st_size
                if length not in (0, size):
                    raise ValueError(f"expected an env server's log of sent steps, got {path}")
                if not length:
                    allocate(file, size)
                memory = mmap.mmap(file.fileno(), size)
        table = np.frombuffer(memory, np.uint64).reshape(1 + _MOST_GROUPS, len(_FIELDS))
        if table[0, 0] not in (0, _MAGIC) or not _fits(table[1:]):
            raise ValueError(f"expected an env server's log of sent steps, got {path}")
        table[0, 0] = _MAGIC
        return table

    def open(self, lease: int, num_envs: Sequence[int]) -> None:
        """Forgets what was reported, and begins to count for the groups of a lease.

        The caller has reported everything: the learner's Assign says that it has arrived.
        """
        self._rows[:] = 0
        for group, size in enumerate(num_envs[:_MOST_GROUPS]):
            self._rows[group] = (0, group, size, 0, 0)
            # Last: a row that says whose it is is complete.
            self._rows[group, _LEASE] = lease
        self._num_open = min(len(num_envs), _MOST_GROUPS)

    def sent(self, group: int) -> None:
        """A step of `group` is about to be sent."""
        if group < self._num_open:
            self._counts[_at(group, _STEPS)] += 1

    def answered(self, group: int) -> None:
        """Actions for `group` have arrived."""
        if group < self._num_open:
            self._counts[_at(group, _ANSWERED)] += 1

    def note_served(self) -> None:
        """A step was answered: the environments can be built and stepped."""
        self.has_served = True
        self._notes[_SERVED] = 1

    def note_finished(self) -> None:
        """The learner has ended training; see `has_finished`."""
        self._notes[_FINISHED] = 1

    def report(self) -> list[Sent]:
        """What is to be reported: all groups of the lease that was open last."""
        return [
            Sent(**dict(zip(_FIELDS, map(int, row), strict=True)))
            for row in self._rows
            if row[_LEASE]
        ]


def has_finished(path: Path) -> bool:
    """True if the process with that log has learned of the end of training, however it ended."""
    try:
        with path.open("rb") as file:
            file.seek(8 * _FINISHED)
            return any(file.read(8))
    except OSError:
        return False


def _at(group: int, field: int) -> int:
    """Where the count is in the table, whose first row belongs to no group."""
    return len(_FIELDS) * (1 + group) + field


def allocate(file: BinaryIO, size: int) -> None:
    """Writes zeros: a page of a mapped file that no disk has room for is a SIGBUS later."""
    try:
        file.write(bytes(size))
        file.flush()
    except OSError:
        with contextlib.suppress(OSError):  # what is left of it would be taken for another file
            os.ftruncate(file.fileno(), 0)
        raise


def _fits(rows: np.ndarray) -> bool:
    """Whether a report can hold them: a disk may give back what nobody has written."""
    return bool((rows[:, [_GROUP, _NUM_ENVS]] < 2**32).all())


def _lock(descriptor: int, path: Path) -> int:
    """Held until the process ends."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise ValueError(f"expected a log of its own, {path} is another env server's") from error
    return descriptor
