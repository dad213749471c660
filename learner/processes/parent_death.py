"""Runs a command that the kernel kills when its parent dies. Started as a script, by its path.

Usage: `python parent_death.py PARENT_PID COMMAND...`. Between a fork and an exec only async-safe
code may run, and gRPC's threads may exist when a process is started; so a small interpreter makes
the tie, and then becomes the command. Linux only; elsewhere the command just runs.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ties this process to its parent and becomes the command."""
    parent, *command = sys.argv[1:]
    tie_to(int(parent))
    os.execv(command[0], command)


def tie_to(parent: int) -> None:
    """From now on the kernel kills this process when its parent dies."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
        # The parent may have died before the tie was made.
        if os.getppid() != parent:
            os._exit(1)


if __name__ == "__main__":
    main()
