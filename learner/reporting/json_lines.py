"""Files of JSON objects, one a line: a run appends to them, other programs read them."""

import contextlib
import json
import logging
import math
import threading
from collections.abc import Iterator, Mapping
from io import SEEK_END, BufferedReader, FileIO
from pathlib import Path
from typing import Any

import numpy as np

# No line that a run writes is as long: a longer one is skipped.
LONGEST_LINE_BYTES = 2**20

_logger = logging.getLogger(__name__)


class JsonLines:
    """Appends to the file `path`, from any thread; what is there already stays.

    A disk that refuses a line is reported as an error, and the run continues. After half a line,
    which a killed process or a full disk leaves, the next one starts on a new line.
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
    """The value as strict JSON: numpy numbers unwrapped, None for those that are not finite."""
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


def whole_lines(file: BufferedReader) -> Iterator[bytes]:
    """The lines of a file, without those that are too long to be of a run."""
    is_start = True
    while line := file.readline(LONGEST_LINE_BYTES):
        is_whole = line.endswith(b"\n")
        if is_start and (is_whole or len(line) < LONGEST_LINE_BYTES):
            yield line
        is_start = is_whole


def parsed(line: bytes) -> dict[str, Any]:
    """The object of a line; empty if it holds none."""
    with contextlib.suppress(ValueError, RecursionError):
        value = json.loads(line)
        if isinstance(value, dict):
            return value
    return {}
