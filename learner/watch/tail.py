"""Following a file of lines to which another process appends."""

import os
from pathlib import Path
from typing import NamedTuple

from seedrl.run_files import open_regular

# Of a long file each look reads one piece, so that a page shows other runs meanwhile.
_PIECE_BYTES = 8 * 2**20


class Gained(NamedTuple):
    """New lines of a file.

    Attributes:
      lines: whole lines, without their ends; empty and very long ones are left out.
      is_another: the file is not the one of the look before, or was cut: these lines are its first.
    """

    lines: list[bytes]
    is_another: bool = False


class Tail:
    """Reads the lines that `path` has gained since the last look. Half a line is left for later.

    Holds no descriptor between two looks, so that a folder may be moved or deleted.
    """

    def __init__(self, path: Path, *, longest_line_bytes: int):
        """`longest_line_bytes`: longer lines are skipped; less than a piece."""
        self._path = path
        self._longest = longest_line_bytes
        self._inode = 0
        self._offset = 0
        self._is_in_long_line = False

    def read(self) -> Gained:
        """The lines since the last call; none while there is no such regular file."""
        try:
            with open_regular(self._path) as file:
                found = os.fstat(file.fileno())
                is_another = self._inode not in (0, found.st_ino) or found.st_size < self._offset
                if is_another:
                    self._offset, self._is_in_long_line = 0, False
                self._inode = found.st_ino
                if found.st_size == self._offset:
                    return Gained([], is_another)
                file.seek(self._offset)
                data = file.read(_PIECE_BYTES)
        except OSError:
            return Gained([])
        end = data.rfind(b"\n") + 1
        lines = data[:end].split(b"\n")
        if end and self._is_in_long_line:
            lines[0], self._is_in_long_line = b"", False
        if len(data) - end > self._longest:
            end, self._is_in_long_line = len(data), True
        self._offset += end
        kept = [line for line in lines if 0 < len(line) <= self._longest]
        return Gained(kept, is_another)
