"""A run that a signal ends before it has begun: one line, and the exit code of an end."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator

from seedrl.exit_codes import ExitCode
from seedrl.programs.ending_signals import ending_signals


def remark(command: str) -> str:
    """What goes after the reason why such a run ends; `command` is what the user typed."""
    return f", before it had begun: nothing was learned or saved; this starts it again: {command}"


def line(by: str, command: str) -> str:
    """All that is said of it; `by` is the name of the signal."""
    return f"the run ends: a signal asked for it: {by}{remark(command)}"


@contextlib.contextmanager
def ending_unbegun(
    command: str, *, code: int = ExitCode.OK, leave: Callable[[int], object] = os._exit
) -> Iterator[None]:
    """Inside, a first SIGTERM, SIGINT or SIGHUP says so and ends the process with `code`.

    It is entered before anything is imported that takes long, and left behind when a run takes the
    signals itself: until then there is no folder, no process and no thread to clean up after. An
    exception in the place of `os._exit` might be swallowed by what is being imported.

    Nothing changes outside the main thread, which alone may handle signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: object) -> None:
        text = line(signal.Signals(number).name, command)
        # Not `print`: it may be what was interrupted.
        with contextlib.suppress(OSError):
            os.write(2, f"{text}\n".encode(errors="replace"))
        leave(code)

    numbers = ending_signals()
    before = [signal.signal(number, end) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
