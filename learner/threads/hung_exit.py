"""The end of a process that waits for nothing."""

import contextlib
import faulthandler
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from typing import IO

from seedrl.exit_codes import ExitCode

# For whoever reads stderr: a reader that has stopped, or a terminal that was, never takes it all.
_STDERR_SECONDS = 5.0


def exit_hung(text: str, code: ExitCode, leave: Callable[[int], object] = os._exit) -> None:
    """Prints all stacks, then `text`; ends the process with `code` even if nobody reads that.

    Asks nobody and takes no lock of ours: whoever has it may be what hangs. `leave` ends the
    process.
    """
    try:
        _say(_stacks() + f"learner: error: {text}; all stacks are above\n".encode())
    finally:
        leave(code)


def exit_now(text: str, code: ExitCode, leave: Callable[[int], object] = os._exit) -> None:
    """Prints `text`, a line; ends the process with `code` at once, like `exit_hung`."""
    try:
        _say(f"{text}\n".encode())
    finally:
        leave(code)


def _say(said: bytes) -> None:
    writer = threading.Thread(target=_write, args=(said,), name="stderr", daemon=True)
    writer.start()
    writer.join(_STDERR_SECONDS)


def _stacks() -> bytes:
    # faulthandler keeps the interpreter's lock while it writes. Were that to stderr, a reader that
    # has stopped would stop every thread, also the one that is to end the process.
    with contextlib.suppress(OSError), _unwritten_file() as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        return file.read()
    return b""


def _unwritten_file() -> IO[bytes]:
    """In memory where that is possible: the disk may be full, which may be why all this hangs."""
    if hasattr(os, "memfd_create"):  # not on macOS
        return open(os.memfd_create("stacks"), "w+b")
    return tempfile.TemporaryFile()


def _write(said: bytes) -> None:
    if sys.__stderr__ is None:  # closed before Python began: that descriptor is another file now
        return
    with contextlib.suppress(OSError):
        while said:
            said = said[os.write(2, said) :]
