"""Files in the directory of a run: their names, and how those of somebody else are read.

The configuration is there from when the run begins to train; commands, status, metrics and events
from its start.
"""

import contextlib
import errno
import io
import json
import math
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from seedrl.errors import ConfigError

CONFIG = "config.json"
COMMANDS = "command.txt"  # the command lines of all sessions
STATUS = "status.json"
METRICS = "metrics.jsonl"
EVENTS = "events.jsonl"
ROLLOUTS = "rollouts.json"  # of a token policy: its newest group, for the dashboard
VIDEOS = "videos"  # a folder: what `seedrl record` writes
LOGS = "logs"  # a folder: output of env servers
EVALUATION_LOGS = "evaluation_logs"  # likewise, of those of `seedrl evaluate`
HOSTS = "hosts"  # a folder: reports of other hosts than the first, each in its own
HOSTS_NOTE = ".hosts"  # by which hosts find that they share the folder
WANDB_ID = "wandb_id.txt"  # its name at Weights & Biases
FINAL_SCORE = "final_score.json"  # what `seedrl evaluate --save` writes

# Nothing that is read as a whole is as large. Parsed JSON takes up to thirty times its bytes.
_MOST_BYTES = 2**24
_MOST_LEVELS = 100


def open_regular(path: Path) -> io.BufferedReader:
    """Opens a file of a run's directory for reading. Raises OSError if it is no regular file.

    The folder may be anybody's. A FIFO in place of a file would keep its reader waiting for ever,
    a device or a link would show what is no part of the run.
    """
    return open(path, "rb", opener=_descriptor)


def open_to_append(path: Path) -> io.FileIO:
    """Opens a file of a run's directory to append to it and to read it, and makes it if need be.

    Raises ConfigError if it is no regular file, other OSErrors as they are.
    """
    try:
        return io.FileIO(str(path), "a+", opener=_descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise
        raise _not_ours(path, "a regular file") from error


def make_folder(path: Path) -> None:
    """Makes a folder within that of a run, if it is not there. Raises OSError.

    And ConfigError if it, or anything in it, is a link: what is written there would be elsewhere.
    """
    path.mkdir(parents=True, exist_ok=True)
    for each in (path, *path.iterdir()):
        if each.is_symlink():
            raise _not_ours(each, "no link")


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Inside, an OSError names `path`: Python's own of a write to a full disk names no file."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _not_ours(path: Path, expected: str) -> ConfigError:
    return ConfigError(
        f"expected {expected} at {path}, where the run writes; remove it, or copy the run"
    )


def _descriptor(path: str, flags: int) -> int:
    # O_NONBLOCK: opening a FIFO returns at once. For regular files it has no meaning.
    flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "expected a regular file", path)


def read_regular(path: Path, *, most_bytes: int = _MOST_BYTES) -> bytes:
    """The content of a regular file. Raises OSError, also for one of more than `most_bytes`."""
    with open_regular(path) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"expected at most {most_bytes:,} bytes", str(path))
    return content


def read_object(path: Path, *, most_bytes: int = _MOST_BYTES) -> dict[str, Any]:
    """The JSON object in a regular file. Raises OSError, and ValueError as `object_of` does."""
    return object_of(read_regular(path, most_bytes=most_bytes))


def object_of(text: str | bytes) -> dict[str, Any]:
    """The JSON object that `text` is. Raises ValueError, also for NaN and infinity."""
    try:
        value = json.loads(text, parse_constant=_refused, parse_float=_finite)
    except RecursionError:
        raise ValueError("expected JSON of fewer levels") from None
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object, got {type(value).__name__}")
    _require_few_levels(value)
    return value


def _require_few_levels(value: Any) -> None:
    # A recursive function could not go through more.
    level = [value]
    for _ in range(_MOST_LEVELS):
        inside = (each.values() if isinstance(each, dict) else each for each in level)
        level = [item for items in inside for item in items if isinstance(item, dict | list)]
        if not level:
            return
    raise ValueError(f"expected JSON of at most {_MOST_LEVELS} levels")


def _refused(name: str) -> NoReturn:
    raise ValueError(f"expected finite numbers, got {name}")


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refused(f"{text:.80}")


def find_runs(folder: Path, depth: int = 3) -> Iterator[Path]:
    """The directories of runs at or below `folder`, by name, at most `depth` folders deep.

    No run is within another. Links are not followed.
    """
    names = (COMMANDS, METRICS, STATUS)  # other folders have a config.json, too
    try:
        is_run = any((folder / n).is_file() and not (folder / n).is_symlink() for n in names)
        below = [path for path in folder.iterdir() if path.is_dir() and not path.is_symlink()]
    except OSError:  # another user's, or gone
        return
    if is_run:
        yield folder
    elif depth:
        for path in sorted(below):
            yield from find_runs(path, depth - 1)
