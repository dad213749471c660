"""`python -m learner`: see `learner.cli.learner`."""

import contextlib
import shlex
import sys
from typing import NoReturn

from seedrl.exit_codes import ExitCode
from seedrl.programs.unbegun import ending_unbegun

_EXIT_SECONDS = 60.0


def main() -> int:
    """Runs a learner; returns its exit code (`seedrl.exit_codes.ExitCode`)."""
    command = shlex.join(["python", "-m", "learner", *sys.argv[1:]])
    # `seedrl train` knows by whom and why a learner of its own was ended.
    is_supervised = "--user-command" in sys.argv
    # Of several hosts, whose engine would take 0 for this one's part done: see `StoppedError`.
    has_others = any(word.partition("=")[0] == "--hosts" for word in sys.argv[1:])
    code = ExitCode.KILLED if has_others else ExitCode.OK
    with contextlib.nullcontext() if is_supervised else ending_unbegun(command, code=code):
        # Takes longer than a person needs for Ctrl-C.
        from learner.cli import learner

        return learner.main()


def _end(code: int) -> NoReturn:
    """Ends this process, whatever Python itself waits for."""
    from learner.threads.exit_deadline import ExitDeadline

    # Never cancelled. Not in `main`, whose caller may be a process that goes on.
    ExitDeadline(_EXIT_SECONDS, "all is done; the process did not end", then=code)
    sys.exit(code)


if __name__ == "__main__":
    _end(main())
