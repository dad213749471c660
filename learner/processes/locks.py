"""Locks that a learner holds: on its run directory, and on the path of its socket."""

import contextlib
import fcntl
import os
import time
from pathlib import Path

from seedrl.errors import AddressInUseError, ConfigError
from seedrl.timing import POLL_SECONDS

_LOCK = ".lock"


def lock(folder: Path) -> int:
    """Makes the folder if it is not there; returns a descriptor that holds its lock.

    Raises AddressInUseError if another one holds it, ConfigError if the folder cannot be written.
    """
    try:
        str(folder.absolute()).encode()
    except UnicodeEncodeError as error:  # orbax refuses it, at the first save
        raise ConfigError(f"--workdir: expected a path in UTF-8, got {folder}") from error
    try:
        with contextlib.suppress(BlockingIOError):
            return _lock(folder)
        time.sleep(POLL_SECONDS)  # another program may only look whether it is locked
        return _lock(folder)
    except BlockingIOError as error:
        raise AddressInUseError(
            f"another learner is using {folder.absolute()}; stop it or choose another --workdir"
        ) from error
    except OSError as error:
        is_file = isinstance(error, FileExistsError | NotADirectoryError)
        reason = "it is a file, or in one" if is_file else error.strerror
        raise ConfigError(
            f"--workdir: cannot write in {folder} ({reason}); change that, or choose another"
        ) from error


def _lock(folder: Path) -> int:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return locked(folder / _LOCK)


def locked(file: Path) -> int:
    """Makes the file if it is not there; returns a descriptor that holds its lock.

    Raises BlockingIOError if another one holds it, other OSErrors if there can be no lock.
    """
    # No link, which another user could have put there.
    descriptor = os.open(file, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def is_locked(folder: Path) -> bool | None:
    """Whether a process of this machine uses the folder; None if that cannot be known."""
    # Then the lock is another user's, or no learner has ever used it.
    with contextlib.suppress(OSError):
        descriptor = os.open(folder / _LOCK, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        try:
            # Shared, so that two who look do not see each other, and only for this moment.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False
    return None
