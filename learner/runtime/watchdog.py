"""Hangs: who notices them, and how the process ends then.

A thread that hangs cannot be ended or joined, and nothing can be saved while it may hold what is
to be saved. So all stacks are printed and the process ends; whoever started it starts it again.
"""

import contextlib
import faulthandler
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Collection
from typing import Self

from seedrl.exit_codes import ExitCode

# How long compiling may take. XLA takes minutes for a large network on few cores, and half an hour
# for nothing that anybody trains.
COMPILE_SECONDS = 30 * 60.0
_LOOK_SECONDS = 0.2

# What is counted of the time between two ticks at most.
_LONGEST_SECONDS = 1.0
_WAIT_SECONDS = 0.2


class AwakeClock:
    """Seconds in which this process was not suspended (Ctrl-Z, a container that was paused).

    Its owner ticks it several times a second; who is late for that was suspended, or so busy that
    counting less does no harm. Other threads may read it.

    Attributes:
      seconds: at the last tick.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._last = clock()
        self.seconds = 0.0

    def tick(self) -> float:
        """Counts the time since the tick before; returns `seconds`."""
        now = self._clock()
        self.seconds += min(now - self._last, _LONGEST_SECONDS)
        self._last = now
        return self.seconds


def wait_awake(
    wait: Callable[[float], bool], seconds: float, clock: Callable[[], float] = time.monotonic
) -> bool:
    """Whether `wait`, which takes a timeout in seconds, is successful within `seconds` awake."""
    awake = AwakeClock(clock)
    while (left := seconds - awake.tick()) > 0.0:
        if wait(min(_WAIT_SECONDS, left)):
            return True
    return wait(0.0)


class Heartbeat:
    """The sign of life of one thread, which alone changes it; the watchdog reads it."""

    def __init__(self, name: str):
        self.name = name
        self._count = 0
        # The number of the present piece of work, 0 if there is none. Rebinding it is atomic, so
        # neither side needs a lock: the watchdog sees the old number or the new one.
        self.piece = 0

    def beat(self) -> None:
        """A piece of work begins, and the one before has ended."""
        self._count += 1
        self.piece = self._count

    def rest(self) -> None:
        """The thread has nothing to do; that may take for ever."""
        self.piece = 0


class Watchdog:
    """Notices threads that are at one piece of work for too long. Owns a thread.

    Nothing else in a run looks for hangs. It takes no lock of anybody: whoever has it may be what
    hangs. Time in which the process is suspended does not count. While programs are compiled only
    compiling has a deadline, for other threads may have to wait for that.
    """

    def __init__(
        self,
        end: Callable[["Watchdog"], object],
        *,
        is_compiling: Callable[[], bool] = lambda: False,
        compile_seconds: float = COMPILE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ):
        """Args: the others are for tests.

        Args:
          end: called several times a second; asks for `late` threads and ends the process.
          is_compiling: whether programs are being compiled, on whatever thread.
        """
        self._end = end
        self._is_compiling = is_compiling
        self._compile_seconds = compile_seconds
        self._awake = AwakeClock(clock)
        self._compiling_since: float | None = None
        self._beats: list[Heartbeat] = []
        # Of each heartbeat the piece of work that was seen last, and since when.
        self._seen: dict[Heartbeat, tuple[int, float]] = {}
        # Of those that may be late: after how many seconds that is reported, and how.
        self._reports: dict[Heartbeat, tuple[float, Callable[[], object]]] = {}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def heartbeat(self, name: str) -> Heartbeat:
        """That of a thread, which is watched from now on."""
        self._beats.append(beat := Heartbeat(name))
        return beat

    def watch(self, beat: Heartbeat, seconds: float, report: Callable[[], object]) -> None:
        """Watches a thread whose hang is reported, once, and does not end the process.

        `report` is called by the watchdog's thread when a piece of work has taken `seconds`.
        """
        self._reports[beat] = seconds, report
        self._beats.append(beat)

    def start(self) -> None:
        """Begins to watch."""
        self._thread.start()

    def stop(self) -> None:
        """Watches no more."""
        self._is_over.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._is_over.wait(_LOOK_SECONDS):
            self.look()

    def look(self) -> None:
        """Looks once; several times a second, or the time in between is taken for a suspension."""
        now = self._awake.tick()
        for beat in self._beats:
            piece = beat.piece  # read once: the thread may go on to the next one meanwhile
            if self._compiling_since is not None or self._seen.get(beat, (0, 0.0))[0] != piece:
                self._seen[beat] = piece, now
        if not self._is_compiling():
            self._compiling_since = None
        elif self._compiling_since is None:
            self._compiling_since = now
        elif now - self._compiling_since > self._compile_seconds:
            exit_hung(
                f"compiling has not ended within {self._compile_seconds / 60:.0f} minutes",
                ExitCode.TEMPORARY,
            )
        for beat, (seconds, report) in list(self._reports.items()):
            piece, since = self._seen.get(beat, (0, now))
            if piece and now - since > seconds:
                self._seen[beat] = piece, math.inf
                report()
        self._end(self)

    def late(self, seconds: float) -> list[str]:
        """Names of threads that have been at one piece of work for longer than that."""
        now = self._awake.seconds
        return [
            beat.name
            for beat, (piece, since) in self._seen.items()
            if piece and now - since > seconds and beat not in self._reports
        ]


def exit_hung(text: str, code: ExitCode, leave: Callable[[int], object] = os._exit) -> None:
    """Prints all stacks, then `text`; ends the process with `code` at once.

    Asks nobody and takes no lock of ours: whoever has it may be what hangs. `leave` ends the
    process.
    """
    try:
        # None if it was closed before Python began: that descriptor is another file now.
        if sys.__stderr__ is not None:
            with contextlib.suppress(OSError):
                faulthandler.dump_traceback(2, all_threads=True)
    finally:
        exit_now(f"learner: error: {text}; all stacks are above", code, leave)


def exit_now(text: str, code: ExitCode, leave: Callable[[int], object] = os._exit) -> None:
    """Prints `text`, a line; ends the process with `code` at once, like `exit_hung`."""
    try:
        if sys.__stderr__ is not None:
            with contextlib.suppress(OSError):
                os.write(2, f"{text}\n".encode())
    finally:
        leave(code)


# What a process waits for at its end though nobody needs it any more: a program that is still being
# compiled. Under load that takes minutes.
_NOT_NEEDED = "compile"
_NOT_NEEDED_SECONDS = 5.0


class ExitDeadline:
    """Ends the process if it has not ended by itself in time. Owns a thread for that.

    What hangs then is a thread that cannot be joined, a service that does not answer, or whatever
    another package does when Python ends: all stacks are printed. Where nothing but a compilation
    is left, the process ends as it would have, and soon.
    """

    def __init__(
        self,
        seconds: float,
        what: str,
        *,
        code: ExitCode = ExitCode.TEMPORARY,
        then: int | None = None,
        leave: Callable[[int], object] = os._exit,
    ):
        """The time begins now.

        Args:
          seconds: how long it may take, not counting time in which this process is suspended.
          what: has not been done by then, in words.
          code: the exit code in that case.
          then: the exit code once nothing but a compilation is left; None if that is not known yet.
          leave: ends the process.
        """
        self._seconds, self._what, self._code, self._then = seconds, what, code, then
        self._leave = leave
        self._is_done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="exit deadline", daemon=True)
        self._thread.start()

    def cancel(self) -> None:
        """It was done in time."""
        self._is_done.set()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()

    def _run(self) -> None:
        seconds = self._seconds
        if self._then is not None:
            seconds = max(0.0, seconds - _NOT_NEEDED_SECONDS)
            if wait_awake(self._is_done.wait, min(_NOT_NEEDED_SECONDS, self._seconds)):
                return
            if only_compiles(threading.enumerate()):
                self._leave(self._then)
                return
        if wait_awake(self._is_done.wait, seconds):
            return
        exit_hung(f"{self._what} within {self._seconds:.0f} s", self._code, self._leave)


def only_compiles(threads: Collection[threading.Thread]) -> bool:
    """Whether those of the threads that a process waits for at its end compile, and there is one.

    The main thread, which waits, is not looked at.
    """
    main = threading.main_thread()
    waited_for = [thread for thread in threads if not thread.daemon and thread is not main]
    return bool(waited_for) and all(each.name.startswith(_NOT_NEEDED) for each in waited_for)
