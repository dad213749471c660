"""When a run is asked to end: signals, and whoever else asks."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from seedrl.exit_codes import ExitCode
from seedrl.programs.outcome import leave
from seedrl.programs.signals import ending_signals

# How a run's reason to end starts if its env servers cannot continue.
ENV_SERVERS_FAILED = "the env servers failed"
# `timeout` of the coreutils signals the process that it started, then that process's group: the
# second signal arrives microseconds after the first. A person needs longer to ask again.
_REPEAT_SECONDS = 1.0


class StopRequest:
    """Set when the run is to end; safe in signal handlers and from any thread."""

    # Not a `threading.Event`: an Event has a lock, and a signal handler may interrupt its holder,
    # which can be another signal's handler. The main thread polls this instead.

    def __init__(self, command: str = "") -> None:
        self.by = ""  # who asked for it first, in words
        self.command = command  # what starts the run again
        self.first_signal: float | None = None  # when it arrived, by a monotonic clock
        # Set once the run is over, before its last lines: signals do not change it any more.
        self.exit_code: int | None = None
        self._is_set = False

    def set(self, by: str = "") -> None:
        """Asks for the end; the first reason counts."""
        self.by = self.by or by
        self._is_set = True

    def is_set(self) -> bool:
        return self._is_set

    def before_start(self) -> str:
        return f", before training started; nothing was saved; this starts it again: {self.command}"


@contextmanager
def stop_on_signals(
    command: str = "", *, clock: Callable[[], float] = time.monotonic
) -> Iterator[StopRequest]:
    """Inside, the first of `ending_signals` sets the request; a second ends the process with 143.

    A second signal within a second of the first is the same request. Once the run has an
    `exit_code` the first changes nothing, and the second ends the process with that code.
    """
    stop = StopRequest(command)
    # No other thread may handle signals: there nothing sets it.
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def handle(number: int, frame: FrameType | None) -> None:
        now = clock()
        if stop.first_signal is None:
            stop.first_signal = now
            if stop.exit_code is None:
                stop.set(signal.Signals(number).name)
        elif now - stop.first_signal >= _REPEAT_SECONDS:
            # At once, without a save: the user has asked twice.
            os._exit(ExitCode.KILLED if stop.exit_code is None else stop.exit_code)

    numbers = ending_signals()
    # Put back at the end: this may be a caller's process.
    before = [signal.signal(number, handle) for number in numbers]
    try:
        yield stop
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def end_with(code: int) -> NoReturn:
    """Ends the process with this exit code, which no signal changes any more."""
    # The run is over and saved: a missed target must not look like an end that was asked for. A
    # handler would not do, because Python takes it back while the interpreter shuts down. Nor is a
    # thread waited for that still compiles, or hangs.
    for number in ending_signals():
        signal.signal(number, signal.SIG_IGN)
    leave(code)
