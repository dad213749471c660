"""Standard output and standard error that may vanish during a run."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, TextIO, cast


class TolerantStream:
    """A text stream that never raises: what cannot be written is dropped, and warned of once.

    A full disk may be freed, so every write is tried. A reader that is gone does not return:
    from then on the stream's descriptor leads nowhere.
    """

    def __init__(self, stream: TextIO, warn: Callable[[str], None] = lambda line: None):
        """`warn` gets the warning, in one line; it must not write to this stream."""
        self._stream = stream
        self._warn = warn
        self._has_warned = False

    def write(self, text: str) -> int:
        """Writes `text`, or drops it."""
        try:
            return self._stream.write(text)
        except (OSError, ValueError) as error:  # ValueError: somebody has closed it
            self._lose(error)
            return len(text)

    def flush(self) -> None:
        """Writes what is buffered, or keeps it for the next time."""
        try:
            self._stream.flush()
        except (OSError, ValueError) as error:
            self._lose(error)

    def close(self) -> None:
        """Only flushes: at exit absl closes what its handler writes to, unless it is sys.stderr."""
        self.flush()

    def release(self) -> None:
        """Leaves nothing in the buffer that could not be written when the process ends."""
        try:
            self._stream.flush()
        except (OSError, ValueError) as error:
            self._lose(error)
            self._lead_nowhere()
            self.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _lose(self, error: Exception) -> None:
        if isinstance(error, BrokenPipeError):
            self._lead_nowhere()
        if not self._has_warned:
            self._has_warned = True
            name = str(getattr(self._stream, "name", "output")).strip("<>")
            self._warn(f"warning: {name} cannot be written ({error}); the run does not need it")

    def _lead_nowhere(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)


@contextlib.contextmanager
def tolerating_lost_output() -> Iterator[None]:
    """Inside, nothing that is written to stdout or stderr raises; each warns of the other's loss.

    Not for a command whose output is its result.
    """
    out, err = sys.stdout, sys.stderr

    def warn_on(stream: TextIO) -> Callable[[str], None]:
        other = TolerantStream(stream)
        return lambda line: print(line, file=cast(TextIO, other), flush=True)

    tolerant = TolerantStream(out, warn_on(err)), TolerantStream(err, warn_on(out))
    sys.stdout, sys.stderr = cast(tuple[TextIO, TextIO], tolerant)
    try:
        yield
    finally:
        for stream in tolerant:
            stream.release()
        sys.stdout, sys.stderr = out, err
