"""An end of the process that cannot hang."""

import os
import threading
from collections.abc import Callable, Collection
from typing import Self

from learner.threads.awake_clock import wait_awake
from learner.threads.hung_exit import exit_hung
from seedrl.exit_codes import ExitCode

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
        code: ExitCode = ExitCode.EXIT_HUNG,
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
