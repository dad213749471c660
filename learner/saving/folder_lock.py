"""Whether a learner is using a run's folder: it holds a lock on a file in it."""

import fcntl
import os
from pathlib import Path

from seedrl.errors import AddressInUseError

FILE_NAME = ".lock"


def check_free(folder: Path) -> None:
    """Raises AddressInUseError if a learner is using the folder, which need not be there.

    The learner looks again, and takes the lock. To look before spares the wait for it, and env
    servers that could not even open their files in the folder.
    """
    try:
        descriptor = os.open(folder / FILE_NAME, os.O_RDONLY)
    except OSError:
        return  # nobody has ever used it, or the learner will say what is wrong with it
    try:
        # Shared, so that two who look do not see each other, and only for this moment.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise in_use(folder.absolute()) from error
    finally:
        os.close(descriptor)


def in_use(folder: Path) -> AddressInUseError:
    """What a learner is told that wants a folder which another one is using."""
    return AddressInUseError(
        f"another learner is using {folder}; stop it or choose another --workdir"
    )
