"""Parts of a checkpoint that other processes write into its folder."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seedrl.errors import CheckpointError
from seedrl.storage import array_store, manifest


class Written(NamedTuple):
    """What other processes have written: entries of the manifest, and what they say in `meta`."""

    files: Mapping[str, Any]
    meta: Mapping[str, Any]


class OtherWriters(NamedTuple):
    """Other processes that write parts of a checkpoint, each by `write_part`.

    Attributes:
      begin: tells them the folder in which it is being written.
      written: waits for their parts; raises CheckpointError if one of them could not write.
    """

    begin: Callable[[Path], None]
    written: Callable[[], Written]


# A process alone.
NOBODY = OtherWriters(lambda folder: None, lambda: Written({}, {}))


def write_part(folder: Path, extra: Mapping[str, np.ndarray], part: int) -> dict[str, Any]:
    """Writes rows of the arrays of a checkpoint that another process saves.

    Args:
      folder: in which that is done.
      extra: large arrays by name.
      part: number of this process, from 1.

    Returns entries of the manifest. Raises CheckpointError if it cannot be written.
    """
    try:
        files = array_store.write_large(folder / "extra", extra, part=part)
        return manifest.entries(folder, files)
    except OSError as error:
        raise CheckpointError(
            f"cannot save a part of {folder}: {error.strerror or error}"
        ) from error


def cause(error: Exception) -> str:
    """Why nothing could be written, in one line."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror} ({error.filename})" if error.filename else error.strerror
    return " ".join(str(error).split())[:500]
