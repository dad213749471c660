"""Standard output and standard error that may vanish during a run."""

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO, cast


class TolerantStream:
    """A text stream whose writes never raise: text that cannot be written is dropped.

    Every write is tried, because a full disk may be freed. A reader that is gone does not return:
    from then on the stream's descriptor is that of the null device.

    Attributes:
      other: gets one warning about that; None if nothing shall.
    """

    def __init__(self, stream: TextIO, other: "TolerantStream | None" = None):
        self._stream = stream
        self.other = other

    def write(self, text: str) -> int:
        """Writes `text`, or drops it."""
        try:
            return self._stream.write(text)
        except (OSError, ValueError) as error:  # ValueError: the stream is closed
            self._lose(error)
            return len(text)

    def flush(self) -> None:
        """Writes what is buffered, or keeps it for the next time."""
        try:
            self._stream.flush()
        except (OSError, ValueError) as error:
            self._lose(error)

    def close(self) -> None:
        """Only flushes: at exit absl closes its handler's stream, unless that is sys.stderr."""
        self.flush()

    def release(self) -> None:
        """Empties the buffer: else Python would fail to write it when the process ends."""
        try:
            self._stream.flush()
        except (OSError, ValueError):
            self._discard()
            self.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _lose(self, error: Exception) -> None:
        if isinstance(error, BrokenPipeError):
            self._discard()
        # Forgotten first: the other stream may be lost, too, and would warn here.
        other, self.other = self.other, None
        if other is not None:
            name = str(getattr(self._stream, "name", "output")).strip("<>")
            other.write(f"warning: {name} cannot be written ({error}); the run does not need it\n")
            other.flush()

    def _discard(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self._stream.fileno())
            os.close(null)


@contextlib.contextmanager
def tolerating_lost_output() -> Iterator[None]:
    """Inside, no write to stdout or stderr raises; each gets a warning when the other is lost.

    Not for a command whose output is its result.
    """
    before = sys.stdout, sys.stderr
    out, err = TolerantStream(before[0]), TolerantStream(before[1])
    out.other, err.other = err, out
    sys.stdout, sys.stderr = cast(TextIO, out), cast(TextIO, err)
    try:
        yield
    finally:
        out.release()
        err.release()
        sys.stdout, sys.stderr = before
