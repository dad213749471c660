"""Runs a command that the kernel ends with its parent. Started as a script, by path.

Usage: `python parent_death.py PARENT_PID SIGNAL COMMAND...`. Between a fork and an exec only
async-safe code may run, and gRPC's threads exist when `seedrl evaluate` starts a process again; so
the tie is made by a small interpreter of its own, which then becomes the command. Linux only;
elsewhere the command merely runs.
"""

import ctypes
import os
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ties this process to its parent and becomes the command."""
    parent, signal_number, *command = sys.argv[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal_number))
        # The parent may have died before the tie was made.
        if os.getppid() != int(parent):
            sys.exit(1)
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
