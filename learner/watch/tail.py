"""Following a file of lines that another process appends to."""

from pathlib import Path
from typing import NamedTuple

# Nothing that a run writes has a line as long: one without an end is passed over.
_LONGEST_LINE_BYTES = 16 * 2**20


class Gained(NamedTuple):
    """What a look at the file found.

    Attributes:
      lines: whole lines, without their ends; empty ones are left out.
      is_another: the file is not the one of the look before, or was cut: these lines are its first.
    """

    lines: list[bytes]
    is_another: bool = False


class Tail:
    """Reads what `path` has gained since the last look. A line that is not whole is left for later.

    Holds no descriptor between two looks, so that a folder may be moved or deleted.
    """

    def __init__(self, path: Path):
        self._path = path
        self._inode = 0
        self._offset = 0

    def read(self) -> Gained:
        """The lines since the last call; none while there is no such file."""
        try:
            found = self._path.stat()
        except OSError:
            return Gained([])
        is_another = self._inode != 0 and (
            found.st_ino != self._inode or found.st_size < self._offset
        )
        if is_another:
            self._offset = 0
        self._inode = found.st_ino
        if found.st_size == self._offset:
            return Gained([], is_another)
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read(found.st_size - self._offset)
        except OSError:
            return Gained([], is_another)
        end = data.rfind(b"\n") + 1
        if end == 0 and len(data) > _LONGEST_LINE_BYTES:
            end = len(data)
        self._offset += end
        return Gained([line for line in data[:end].split(b"\n") if line], is_another)
