"""How a program ends: which signals ask for it, its exit code, and the last line that it writes."""

import contextlib
import errno
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn

from seedrl.errors import UserError
from seedrl.exit_codes import ExitCode
from seedrl.programs import extras

# What a disk or a folder says that cannot be written to; nothing that code of ours gets wrong.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_UNWRITABLE = (*_FULL, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO)
_LOST_READER = 128 + signal.SIGPIPE  # as if the signal, which Python ignores, had killed it

# How an env server begins the last line of its log if it ends by its own decision: who has started
# it reads there whether it ended or merely died, because an environment may end its process with
# any exit code. It is written before environments are closed, which may write more lines.
FAREWELL = "ends: "
# Follows it when the learner has said that training is over.
FINISHED = "finished: "


def ending_signals() -> list[signal.Signals]:
    """SIGTERM, SIGINT, and SIGHUP: the terminal is gone, and learned parameters are to be saved.

    Not SIGHUP if it is ignored: `nohup` starts a program that way, which is to outlive its
    terminal.
    """
    numbers = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]


def exit_code(command: Callable[[], int], *, prog: str) -> int:
    """Runs `command` and turns what it raises into one of the documented exit codes.

    A `UserError` is one line on stderr after the name of the program, `prog`; so are a package that
    is not installed and a disk that takes nothing. Who reads stdout may go away. Any other
    exception is a defect of ours, and its traceback is printed.
    """
    # What gRPC's core writes on a terminal by itself, programs here say in their own words. It is
    # read when gRPC is imported, which no program does before it knows its command line.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        try:
            return command()
        finally:
            # Here: when the interpreter ends, nobody is left to understand an error.
            sys.stdout.flush()
    except BrokenPipeError:
        _lose_stdout()
        return _LOST_READER
    except UserError as error:
        return _fail(prog, str(error), error.exit_code)
    except KeyboardInterrupt:
        return ExitCode.KILLED
    except Exception as error:
        if isinstance(error, ImportError) and (missing := extras.describe(error)):
            return _fail(prog, missing, ExitCode.USAGE)
        if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
            return _fail(prog, f"the path {error.filename} is too long", ExitCode.USAGE)
        if isinstance(error, OSError) and error.errno in _UNWRITABLE:
            return _fail(prog, f"cannot write: {error}", ExitCode.UNREADABLE_CHECKPOINT)
        _print_error(f"{traceback.format_exc()}{prog}: internal error, see the traceback above")
        return ExitCode.INTERNAL


def leave(code: int) -> NoReturn:
    """Ends the process with that exit code, once what it has written is out.

    It never returns or raises: what cannot be written is lost, as on a full disk.
    """
    # `exit_code` has already said what cannot be written; stdout's buffer still holds it.
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


def _fail(prog: str, text: str, code: ExitCode) -> ExitCode:
    _print_error(f"{prog}: error: {' '.join(text.split())}")
    return code


def _lose_stdout() -> None:
    """Leads stdout nowhere: what its buffer still holds would be an error at the end."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _print_error(text: str) -> None:
    # The exit code counts, even if nobody reads why.
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr)
