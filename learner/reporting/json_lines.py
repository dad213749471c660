"""A file of JSON objects, one a line, to which a run appends."""

import json
import logging
import math
import threading
from collections.abc import Mapping
from io import SEEK_END, FileIO
from pathlib import Path
from typing import Any

import numpy as np

_logger = logging.getLogger(__name__)


class JsonLines:
    """Appends to the file `path`, from any thread; what is there already stays.

    A disk that refuses a line is reported as an error, and the run continues. Half a line that a
    killed process left, or a full disk, does not swallow the next one.
    """

    def __init__(self, path: Path):
        self._lock = threading.Lock()
        self._file = path.open("a+b", buffering=0)
        self._is_torn = _ends_in_half_a_line(self._file)

    def append(self, fields: Mapping[str, Any]) -> None:
        """Writes a line; numbers that are not finite become null."""
        line = json.dumps(plain(fields), allow_nan=False).encode() + b"\n"
        with self._lock:
            try:
                data = b"\n" + line if self._is_torn else line
                self._is_torn = self._file.write(data) != len(data)
            except OSError as error:
                self._is_torn = True
                _logger.error("cannot write %s: %s", self._file.name, error)

    def close(self) -> None:
        """Closes the file."""
        with self._lock:
            self._file.close()


def plain(value: Any) -> Any:
    """The value as strict JSON can hold it: numpy numbers unwrapped, not finite ones None."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, int | str) or value is None else str(value)


def _ends_in_half_a_line(file: FileIO) -> bool:
    if file.seek(0, SEEK_END) == 0:
        return False
    file.seek(-1, SEEK_END)
    return file.read(1) != b"\n"
