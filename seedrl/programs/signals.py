"""Signals that ask a program to end.

Imports little: Ctrl-C is Python's own traceback until `end_on_signals` is called.
"""

import os
import signal
from types import FrameType

from seedrl.exit_codes import ExitCode


def ending_signals() -> list[signal.Signals]:
    """SIGTERM, SIGINT, and SIGHUP: the terminal is gone, and learned parameters are to be saved.

    Not SIGHUP if it is ignored: `nohup` starts a program that way, which is to outlive its
    terminal.
    """
    numbers = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]


def end_on_signals() -> None:
    """Until the program has handlers of its own, a signal ends it with one line and 143."""
    for number in ending_signals():
        signal.signal(number, _end)


def _end(number: int, frame: FrameType | None) -> None:
    # Nothing has begun. Not by an exception: one that is raised within an import may be swallowed.
    name = signal.Signals(number).name
    try:
        os.write(2, f"stopped by {name}, before anything was started or saved\n".encode())
    finally:
        os._exit(ExitCode.KILLED)
