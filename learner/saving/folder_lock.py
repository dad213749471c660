"""The lock on a run's folder: whether a learner is using it, and who may remove what is in it."""

import contextlib
import fcntl
import os
import shutil
from pathlib import Path

from seedrl import run_files
from seedrl.errors import AddressInUseError

_NAME = ".lock"
# All that a run which is refused can have left in a folder that was made for it. The lock goes
# last.
_OUR_FOLDERS = (run_files.LOGS, "tb", "wandb", run_files.HOSTS)
_OUR_FILES = (
    run_files.COMMANDS,
    run_files.EVENTS,
    run_files.STATUS,
    run_files.METRICS,
    run_files.HOSTS_NOTE,
    run_files.RECORDING,
    run_files.WANDB_ID,
    _NAME,
)


def lock(folder: Path) -> int:
    """A descriptor that holds the folder's lock. Raises AddressInUseError if another one does."""
    path = folder / _NAME
    while True:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Between the two lines above, its last holder may have removed the file: the lock that
            # counts is that of the file which others find.
            if path.exists() and os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        except BlockingIOError as error:
            os.close(descriptor)
            raise _in_use(folder) from error
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def check_free(folder: Path) -> None:
    """Raises AddressInUseError if a learner is using the folder, which need not be there.

    The learner looks again, and takes the lock. To look before spares the wait for it, and env
    servers that could not even open their files in the folder.
    """
    try:
        descriptor = os.open(folder / _NAME, os.O_RDONLY)
    except OSError:
        return  # nobody has ever used it, or the learner will say what is wrong with it
    try:
        # Shared, so that two who look do not see each other, and only for this moment.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise _in_use(folder) from error
    finally:
        os.close(descriptor)


def is_abandoned(folder: Path) -> bool:
    """Whether no process of this machine has the folder that a learner has used.

    False also where that cannot be known: the lock is another user's, or there is none.
    """
    try:
        descriptor = os.open(folder / _NAME, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(descriptor)


def remove_refused(folder: Path) -> None:
    """Removes the folder that was made for a run which was then refused.

    What others have put there stays, and so does everything where a run has begun or a learner
    holds the lock: another `seedrl train` may have taken the same folder meanwhile.
    """
    with contextlib.suppress(OSError):
        descriptor = lock(folder)
        try:
            remove_ours(folder)
        finally:
            os.close(descriptor)


def remove_ours(folder: Path) -> None:
    """Removes what a refused run has left, and the folder if that was all. Needs the lock.

    Raises OSError if something else is there.
    """
    if (folder / run_files.CONFIG).exists():
        return  # a run has begun
    for name in _OUR_FOLDERS:
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in _OUR_FILES:
        (folder / name).unlink(missing_ok=True)
    folder.rmdir()


def _in_use(folder: Path) -> AddressInUseError:
    """What a learner is told that wants a folder which another one is using."""
    return AddressInUseError(
        f"another learner is using {folder.absolute()}; stop it or choose another --workdir"
    )
