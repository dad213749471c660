"""Standard output and standard error that may vanish during a run."""

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO, cast


class TolerantStream:
    """A text stream whose writes never raise: text that cannot be written is dropped."""

    # Every write is tried, because a full disk may be freed.

    def __init__(self, stream: TextIO):
        self._stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError, ValueError):  # ValueError: the stream is closed
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Writes what is buffered, or keeps it for the next time."""
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()

    # At exit absl closes its handler's stream, unless that is sys.stderr.
    close = flush

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def tolerating_lost_output() -> Iterator[None]:
    """Inside, no write to stdout or stderr raises: a run continues when its reader is gone."""
    # Not for a command whose output is its result.
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast(TextIO, TolerantStream(stream)) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for stream in before:
            _empty(stream)


def _empty(stream: TextIO) -> None:
    # What is left in the buffer Python would fail to write when the process ends.
    try:
        stream.flush()
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)
            stream.flush()
