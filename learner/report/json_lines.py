"""Files of a run that other programs read while it writes: JSON lines, and whole files."""

import contextlib
import json
import logging
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from io import SEEK_END
from pathlib import Path
from typing import Any

from seedrl.run_files import naming, object_of, open_regular, open_to_append

# No line that a run writes is as long: a longer one is skipped.
LONGEST_LINE_BYTES = 2**20

_LARGEST = 1e300
# Of a long file each look reads one piece, so that a page shows other runs meanwhile.
_PIECE_BYTES = 8 * 2**20

_logger = logging.getLogger(__name__)


class JsonLines:
    """Appends to the file `path`, from one thread at a time; what is there already stays."""

    # A disk that refuses a line is reported as an error, and the run continues. After half a line,
    # which a killed process or a full disk leaves, the next one starts on a new line.

    def __init__(self, path: Path):
        self._file = open_to_append(path)
        is_empty = self._file.seek(0, SEEK_END) == 0
        if not is_empty:
            self._file.seek(-1, SEEK_END)
        self._is_torn = not is_empty and self._file.read(1) != b"\n"

    def append(self, fields: Any) -> None:
        """Writes a mapping or a dataclass as a line; see `plain`."""
        line = json.dumps(plain(fields), allow_nan=False).encode() + b"\n"
        try:
            data = b"\n" + line if self._is_torn else line
            self._is_torn = self._file.write(data) != len(data)
        except OSError as error:
            self._is_torn = True
            _logger.error("cannot write %s: %s", self._file.name, error.strerror)

    def close(self) -> None:
        self._file.close()


def plain(value: Any) -> Any:
    """The value as strict JSON: dataclasses are objects, numbers that are not finite None."""
    if is_dataclass(value):
        value = vars(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    # Of numpy, which commands that only print a line do not import.
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, int | str) or value is None else str(value)


def replace_file(path: Path, content: str | bytes) -> None:
    """Writes the file whole or not at all: a full disk leaves what was there. Raises OSError."""
    # The folder may be anybody's: a link in place of either file is replaced, never followed.
    # in the same folder, because a rename cannot cross file systems
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    try:
        with naming(path), new.open("xb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        # Atomic: a reader finds the old file or the new one, whole.
        os.replace(new, path)
    except OSError:
        new.unlink(missing_ok=True)
        raise


class LineReader:
    """Reads the lines that a file has gained since the last call. Half a line is left for later."""

    # The file may be anybody's: nothing but a regular file is opened, memory is bounded. Holds no
    # descriptor between two calls, so that a folder may be moved or deleted.

    def __init__(self, path: Path, *, longest_line_bytes: int = LONGEST_LINE_BYTES):
        """`longest_line_bytes`: longer lines are skipped; less than a piece."""
        self._path = path
        self._longest = longest_line_bytes
        self._inode = 0
        self._offset = 0

    def rest(self) -> Iterator[list[bytes]]:
        """All lines up to the end that the file has now, piece by piece."""
        # A piece without a line is the end, or no file of ours: it could be of any size.
        while lines := self.read()[0]:
            yield lines

    def read(self) -> tuple[list[bytes], bool]:
        """The whole lines since the last call, without their ends; very long ones are left out."""
        # None while there is no such regular file. True if the file is not the one of the call
        # before, or was cut: these lines are its first.
        try:
            with open_regular(self._path) as file:
                found = os.fstat(file.fileno())
                is_another = self._inode not in (0, found.st_ino) or found.st_size < self._offset
                if is_another:
                    self._offset = 0
                self._inode = found.st_ino
                if found.st_size == self._offset:
                    return [], is_another
                file.seek(self._offset)
                data = file.read(_PIECE_BYTES)
        except OSError:
            return [], False
        end = data.rfind(b"\n") + 1
        # Of a line that is longer than a piece, only the rest is ever read; it is no JSON.
        self._offset += end or len(data) // _PIECE_BYTES * _PIECE_BYTES
        lines = data[:end].split(b"\n")
        return [line for line in lines if 0 < len(line) <= self._longest], is_another


def number(fields: Mapping[str, Any], name: str) -> float | None:
    """The finite number of that name; None if there is none, or anything else."""
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # Compared before it is converted: no float holds an integer of 400 digits.
    return float(value) if abs(value) < _LARGEST else None


def parsed(line: bytes) -> dict[str, Any]:
    """The object of a line; empty if it holds none that this program would write."""
    with contextlib.suppress(ValueError):
        return object_of(line)
    return {}
