"""Temporary folders whose process was killed, and could not remove them.

Who makes such a folder holds a lock on a file in it: the kernel releases it with the process.
"""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

_LOCK = "alive"


@contextlib.contextmanager
def holding(folder: Path) -> Iterator[None]:
    """Inside, `folder` belongs to this process: nobody takes it for abandoned."""
    # Renamed only once it is locked: a file of that name without a lock means a dead process.
    path = folder / f".{_LOCK}"
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        path.rename(folder / _LOCK)
        yield
    finally:
        os.close(descriptor)


def remove_abandoned(folder: Path) -> None:
    """Removes a folder that a dead process has held; leaves every other one as it is."""
    with contextlib.suppress(OSError):
        # Of another user it cannot be opened; of a process that lives it is locked.
        descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(descriptor)
