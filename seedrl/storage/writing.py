"""Who may change a directory of checkpoints: one process at a time."""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from seedrl.errors import CheckpointError


@contextlib.contextmanager
def writing(directory: Path, *, timeout_seconds: float, create: bool = True) -> Iterator[None]:
    """Inside, this process alone changes `directory`.

    Waits `timeout_seconds` for another one; then CheckpointError. OSError if there is no lock to
    take and none is created.
    """
    flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
    descriptor = os.open(directory / ".lock", flags, 0o600)
    deadline = time.monotonic() + timeout_seconds
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() >= deadline:
                    raise CheckpointError(f"another process is saving to {directory}") from error
                time.sleep(0.02)
        yield
    finally:
        os.close(descriptor)
