"""How a command ends: its exit code, and the one line that goes with a user's error."""

import sys
import traceback
from collections.abc import Callable

from seedrl.errors import ExitCode, UserError


def exit_code(command: Callable[[], int], *, prog: str) -> int:
    """Runs `command` and turns what it raises into one of the documented exit codes.

    A `UserError` is one line on stderr after the name of the program, `prog`; any other exception
    is a defect of ours, and its traceback is printed.
    """
    try:
        return command()
    except UserError as error:
        print(f"{prog}: error: {' '.join(str(error).split())}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return ExitCode.KILLED
    except Exception:
        traceback.print_exc()
        print(f"{prog}: internal error, see the traceback above", file=sys.stderr)
        return ExitCode.INTERNAL
