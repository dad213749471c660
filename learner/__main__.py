"""`python -m learner`: see `learner.cli.train`."""

import sys
from typing import NoReturn

_EXIT_SECONDS = 60.0


def main() -> int:
    """Runs a learner; returns its exit code (`seedrl.exit_codes.ExitCode`)."""
    from learner.cli import train

    return train.main()


def _end(code: int) -> NoReturn:
    """Ends this process, whatever Python itself waits for."""
    from learner.processes.stop import end_with
    from learner.runtime.watchdog import ExitDeadline

    end_with(code)
    # Never cancelled. Not in `main`, whose caller may be a process that goes on.
    ExitDeadline(_EXIT_SECONDS, "all is done; the process did not end", then=code)
    sys.exit(code)


if __name__ == "__main__":
    _end(main())
