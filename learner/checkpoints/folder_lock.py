"""The lock on a run's folder: whether a learner is using it. Imports no jax: command lines ask."""

import contextlib
import fcntl
import os
from pathlib import Path

from seedrl.errors import AddressInUseError

_LOCK = ".lock"


def lock(folder: Path) -> int:
    """A descriptor that holds the folder's lock. Raises AddressInUseError if another one does."""
    path = folder / _LOCK
    while True:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Between the two lines above, its last holder may have removed the folder: the lock
            # that counts is that of the file which others find.
            if path.exists() and os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        except BaseException as error:
            os.close(descriptor)
            if isinstance(error, BlockingIOError):
                raise _in_use(folder) from error
            raise
        os.close(descriptor)


def check_free(folder: Path) -> None:
    """Raises AddressInUseError if a learner is using the folder, which need not be there."""
    # The learner takes the lock later. To look before spares env servers that could not even open
    # their files in the folder.
    if is_locked(folder):
        raise _in_use(folder)


def is_locked(folder: Path) -> bool | None:
    """Whether a process of this machine uses the folder; None if that cannot be known."""
    # Then the lock is another user's, or no learner has ever used it.
    with contextlib.suppress(OSError):
        descriptor = os.open(folder / _LOCK, os.O_RDONLY | os.O_NONBLOCK)
        try:
            # Shared, so that two who look do not see each other, and only for this moment.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False
    return None


def _in_use(folder: Path) -> AddressInUseError:
    return AddressInUseError(
        f"another process is using {folder.absolute()}; stop it or choose another --workdir"
    )
