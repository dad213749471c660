"""Ends a process whose environment hangs; its supervisor starts another one."""

import contextlib
import faulthandler
import logging
import math
import os
import threading
import time
import traceback
from collections.abc import Iterator

from seedrl.exit_codes import ExitCode

_log = logging.getLogger("envs_server")

_LOOK_SECONDS = 0.5


class HangLimit:
    """Ends the process if a thread takes longer than it may for one piece of work.

    Who works says until when it will be done. A thread looks every half a second and, while nothing
    is overdue, winds up `faulthandler`'s timer again: a C thread, which prints all stacks and ends
    the process with exit code 1 also if native code keeps the interpreter's lock, so that no thread
    of Python's runs any more.
    """

    def __init__(self) -> None:
        self._until: dict[int, float] = {}  # by thread; each writes its own entry only
        self._limit_seconds = 0.0  # of the work that was begun last
        self._is_started = False

    def start(self, max_memory_mib: int = 0) -> None:
        """Starts to look. Ends the process too if it needs more memory than that, 0 for no limit.

        Also beyond three quarters of the machine's memory: a learner's arguments decide how much
        is built.
        """
        self._is_started = True
        most = max_memory_mib or 3 * _machine_mib() // 4
        threading.Thread(target=self._guarded, args=(most,), name="hang limit", daemon=True).start()

    def begin(self, seconds: float) -> None:
        """The thread of this call works from now on, for so long at most; 0 for ever."""
        if seconds:
            if seconds != self._limit_seconds:  # it may let no thread look, from now on
                self._limit_seconds = seconds
                self._wind_up(seconds)
            self._until[threading.get_ident()] = time.monotonic() + seconds

    def end(self) -> None:
        """It has done it."""
        self._until.pop(threading.get_ident(), None)

    @contextlib.contextmanager
    def limit(self, seconds: float) -> Iterator[None]:
        """Inside, the thread works."""
        self.begin(seconds)
        try:
            yield
        finally:
            self.end()

    def _guarded(self, most_mib: int) -> None:
        try:
            self._look(most_mib)
        except BaseException:  # or a hang would go unnoticed
            with contextlib.suppress(OSError):  # a closed terminal
                traceback.print_exc()
            os._exit(ExitCode.INTERNAL)

    def _look(self, most_mib: int) -> None:
        while True:
            if (mib := resident_mib()) > most_mib:
                _log.error("the process has grown to %d MiB (--max-memory-mib) and ends", mib)
                os._exit(ExitCode.TEMPORARY)
            now = time.monotonic()
            # A copy in one step of the interpreter: the threads go on meanwhile.
            left = min(self._until.copy().values(), default=math.inf) - now
            if left <= 0:
                _log.error("an environment hangs (serving.step_deadline_seconds); the stacks:")
                faulthandler.dump_traceback_later(0.001, exit=True)
                return
            if self._limit_seconds:  # work may begin right after this look
                self._wind_up(min(left, self._limit_seconds))
            time.sleep(_LOOK_SECONDS)

    def _wind_up(self, seconds: float) -> None:
        if self._is_started:
            faulthandler.dump_traceback_later(seconds + 2 * _LOOK_SECONDS, exit=True)


def resident_mib() -> int:
    """Memory of this process, in MiB; 0 where that is not known."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 2**20
    except OSError:
        return 0


def _machine_mib() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20
