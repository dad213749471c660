"""How a program ends: its exit code, and the last line that it writes."""

import contextlib
import errno
import io
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn

from seedrl.errors import UserError
from seedrl.exit_codes import ExitCode

# Errors of a full disk or a folder that cannot be written to: no defect of ours.
_UNWRITABLE = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG),
    *(errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO),
)
_LOST_READER = 128 + signal.SIGPIPE  # as if the signal, which Python ignores, had killed it


def exit_code(command: Callable[[], int], *, prog: str) -> int:
    """Runs `command` and turns its exceptions into one of the documented exit codes.

    A `UserError` is one line on stderr after the name of the program, `prog`; so are a missing
    package and a full disk. Any other exception is a defect of ours: its traceback is printed.
    """
    # gRPC's core would write on the terminal by itself; programs here report in their own words. It
    # is read when gRPC is imported, which no program does before it has read its command line.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    # A run's files show experience: whatever a program here writes is for its user alone.
    os.umask(0o077)
    _open_missing_streams()
    # A parent that ignores the ends of its children hands that down: no child could be waited for.
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # Where it lacks a character, such as a dash, `?` stands in its place.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    try:
        try:
            return command()
        finally:
            # Here: an error during the interpreter's shutdown would be a traceback.
            sys.stdout.flush()
    except BrokenPipeError:
        # Leads stdout nowhere: the rest of its buffer would be an error at the end.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _LOST_READER
    except KeyboardInterrupt:
        return ExitCode.KILLED
    except Exception as error:
        line, code = _described(error)
        text = f"error: {' '.join(line.split())}"
        # The exit code counts, even if nobody reads why.
        with contextlib.suppress(OSError):
            if code == ExitCode.INTERNAL:
                traceback.print_exc()
                text = "internal error, see the traceback above"
            print(f"{prog}: {text}", file=sys.stderr)
        return code


def _open_missing_streams() -> None:
    # The caller may have closed them. Then the first file that a run opens would get number 1 or 2,
    # and with it whatever a library prints.
    if None in (sys.stdin, sys.stdout, sys.stderr):
        while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
            os.set_inheritable(number, True)
        os.close(number)
        sys.stdout, sys.stderr = sys.stdout or os.fdopen(1, "w"), sys.stderr or os.fdopen(2, "w")


def _described(error: Exception) -> tuple[str, ExitCode]:
    # No line for a defect of ours, of which the traceback is printed.
    if isinstance(error, UserError):
        return str(error), error.exit_code
    if isinstance(error, ImportError):
        from seedrl.hints import missing_extra

        if missing := missing_extra(error):
            return missing, ExitCode.USAGE
    if isinstance(error, FileNotFoundError) and error.filename is None:  # of `os.getcwd`
        return "the current directory has been deleted; change to another one", ExitCode.USAGE
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return f"the path {error.filename} is too long", ExitCode.USAGE
    if isinstance(error, OSError) and error.errno in _UNWRITABLE:
        return f"cannot read or write: {error}", ExitCode.UNREADABLE_CHECKPOINT
    return "", ExitCode.INTERNAL


def leave(code: int) -> NoReturn:
    """Ends the process with that exit code after flushing logs and stdout; errors are ignored."""
    # `exit_code` has already reported a stdout that cannot be written; its buffer is still full.
    try:
        logging.shutdown()
    finally:
        try:
            sys.stdout.flush()
        finally:
            # Not sys.exit: when the interpreter shuts down, gRPC's daemon threads stop wherever
            # they are, maybe with the lock that the finaliser of the call then waits for, for ever
            # (seen in one of 120 exits of a busy machine; Python 3.12, grpcio 1.85).
            os._exit(code)
