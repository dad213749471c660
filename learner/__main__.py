"""`python -m learner`: see `learner.cli.train`."""

import os
import sys
import threading
from typing import NoReturn

from seedrl.timing import GRACE_SECONDS


def main() -> int:
    """Runs a learner; returns its exit code (`seedrl.exit_codes.ExitCode`)."""
    from learner.cli import train

    return train.main()


def _end(code: int) -> NoReturn:
    """Ends this process, whatever Python itself waits for."""
    from learner.processes.stop import end_with

    end_with(code)
    # All is saved and reported: a thread that still compiles, or hangs, is not waited for. Not in
    # `main`, whose caller may be a process that continues.
    leave = threading.Timer(GRACE_SECONDS, os._exit, (code,))
    leave.daemon = True
    leave.start()
    sys.exit(code)


if __name__ == "__main__":
    _end(main())
