"""How a command ends: its exit code, and the one line that goes with a user's error."""

import contextlib
import sys
import traceback
from collections.abc import Callable

from seedrl.errors import UserError
from seedrl.exit_codes import ExitCode


def exit_code(command: Callable[[], int], *, prog: str) -> int:
    """Runs `command` and turns what it raises into one of the documented exit codes.

    A `UserError` is one line on stderr after the name of the program, `prog`; any other exception
    is a defect of ours, and its traceback is printed.
    """
    try:
        return command()
    except UserError as error:
        _print_error(f"{prog}: error: {' '.join(str(error).split())}")
        return error.exit_code
    except KeyboardInterrupt:
        return ExitCode.KILLED
    except Exception:
        _print_error(f"{traceback.format_exc()}{prog}: internal error, see the traceback above")
        return ExitCode.INTERNAL


def _print_error(text: str) -> None:
    # The exit code counts, even if nobody reads why.
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr)
