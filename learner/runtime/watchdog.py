"""Hangs: how they are noticed, and how the process ends then.

A thread that hangs cannot be ended or joined, and no state can be saved while it may hold it. So
all stacks are printed and the process ends; its supervisor starts it again.
"""

import contextlib
import faulthandler
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator

from seedrl.exit_codes import ExitCode
from seedrl.timing import POLL_SECONDS

# The longest that compiling may take. XLA takes minutes for a large network on few cores, and half
# an hour for no network that is trained in practice.
COMPILE_SECONDS = 30 * 60.0


class Heartbeat:
    """The sign of life of one thread, the only one that changes it; the watchdog reads it."""

    def __init__(self, name: str):
        self.name = name
        self._count = 0
        # The number of the present piece of work, 0 if there is none. Rebinding it is atomic, so
        # neither side needs a lock: the watchdog sees the old number or the new one.
        self.piece = 0

    def beat(self) -> None:
        """Marks that a piece of work starts, and the one before has ended."""
        self._count += 1
        self.piece = self._count

    def rest(self) -> None:
        """Marks that the thread has no work; that may take as long as it likes."""
        self.piece = 0


class Watchdog:
    """Notices threads that are at one piece of work for too long. Owns a thread.

    Nothing else in a run looks for hangs. It takes no lock: the thread that has it may be the one
    that hangs. Time in which the process is suspended (Ctrl-Z, a paused container) does not count.
    """

    def __init__(
        self,
        end: Callable[["Watchdog"], object],
        *,
        is_compiling: Callable[[], bool] = lambda: False,
        compile_seconds: float = COMPILE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ):
        """The other arguments are for tests.

        Args:
          end: called several times a second; asks for `late` threads and ends the process.
          is_compiling: True while any thread compiles programs.
        """
        self._end = end
        self._is_compiling = is_compiling
        self._compile_seconds = compile_seconds
        self._clock = clock
        self._looked = clock()
        self._awake_seconds = 0.0  # at the last look
        self._compiling_since: float | None = None
        self._beats: list[Heartbeat] = []
        # Of each heartbeat the piece of work that was seen last, and since when.
        self._seen: dict[Heartbeat, tuple[int, float]] = {}
        # Of those that may be late: after how many seconds that is reported, and how.
        self._reports: dict[Heartbeat, tuple[float, Callable[[], object]]] = {}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def heartbeat(self, name: str) -> Heartbeat:
        """Of a thread, which is watched from now on."""
        self._beats.append(beat := Heartbeat(name))
        return beat

    def watch(self, beat: Heartbeat, seconds: float, report: Callable[[], object]) -> None:
        """Watches a thread whose hang is reported, once, and does not end the process.

        `report` is called by the watchdog's thread when a piece of work has taken `seconds`.
        """
        self._reports[beat] = seconds, report
        self._beats.append(beat)

    def start(self) -> None:
        """Starts to watch."""
        self._thread.start()

    def stop(self) -> None:
        """Watches no more."""
        self._is_over.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._is_over.wait(POLL_SECONDS):
            self.look()

    def look(self) -> None:
        """Looks once; to be called several times a second."""
        before, self._looked = self._looked, self._clock()
        # A look that is late means that the process was suspended, or so busy that counting less
        # does no harm.
        now = self._awake_seconds = self._awake_seconds + min(self._looked - before, 1.0)
        for beat in self._beats:
            piece = beat.piece  # read once: the thread may start the next one meanwhile
            # While programs are compiled only compiling has a deadline: other threads may have to
            # wait for it.
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
                # Once: until the next piece of work it is never late again.
                self._seen[beat] = piece, math.inf
                report()
        self._end(self)

    def late(self, seconds: float) -> list[str]:
        """Names of threads that have been at one piece of work for longer than that."""
        now = self._awake_seconds
        return [
            beat.name
            for beat, (piece, since) in self._seen.items()
            if piece and now - since > seconds and beat not in self._reports
        ]


def exit_hung(text: str, code: ExitCode) -> None:
    """Prints all stacks, then `text`; ends the process with `code` at once, without any lock."""
    try:
        # None if it was closed before Python began: that descriptor is another file now.
        if sys.__stderr__ is not None:
            with contextlib.suppress(OSError):
                faulthandler.dump_traceback(2, all_threads=True)
    finally:
        exit_now(f"learner: error: {text}; all stacks are above", code)


def exit_now(text: str, code: ExitCode) -> None:
    """Prints `text`, a line; ends the process with `code` at once, like `exit_hung`."""
    try:
        if sys.__stderr__ is not None:
            with contextlib.suppress(OSError):
                os.write(2, f"{text}\n".encode())
    finally:
        os._exit(code)


@contextlib.contextmanager
def exit_deadline(
    seconds: float,
    what: str,
    code: ExitCode = ExitCode.TEMPORARY,
    *,
    end: Callable[[str, ExitCode], None] = exit_hung,
) -> Iterator[None]:
    """Ends the process by `end` with `code` if the block takes longer than `seconds`.

    `what` has not happened by then, in words. `exit_now` in place of `exit_hung` prints no stacks.
    """
    # What hangs may be a thread that cannot be joined, or a service that does not answer.
    deadline = threading.Timer(seconds, end, (f"{what} within {seconds:.0f} s", code))
    deadline.daemon = True  # it must not keep a process that ends by itself
    deadline.start()
    try:
        yield
    finally:
        deadline.cancel()
