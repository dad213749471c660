"""How the process ends before its work is over: a signal, its parent's death, or a hang."""

import contextlib
import ctypes
import faulthandler
import logging
import math
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Self

from seedrl.exit_codes import ExitCode

_log = logging.getLogger("envs_server")

# What the child notes for its supervisor once training is over: its exit code does not show that.
FINISHED = "finished"
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
# For environments to be closed, once the process is asked to stop: less than its supervisor waits.
_CLOSING_SECONDS = 3.0
_LOOK_SECONDS = 0.5  # between two looks for a hang
_LONGEST_SECONDS = 1e9  # faulthandler refuses more than about nine times that
_STDERR = 2  # the descriptor: an environment may have put anything in place of `sys.stderr`


class Stop:
    """A stop request that a signal handler may make. Owns a pipe and a thread that reads it."""

    # A signal handler runs in the middle of whatever the main thread does, maybe while that holds
    # the lock which setting an event or cancelling a stream needs. So the handler only writes a
    # byte, and the thread does the rest.

    def __init__(self) -> None:
        self._event = threading.Event()
        self._cancel: Callable[[], object] = lambda: None
        self._has_process = False
        self._read_end, self._write_end = os.pipe()
        _start("stop", self._watch)

    def install(self) -> None:
        """Makes SIGTERM and SIGINT stop requests, which end the process. In the main thread."""
        self._has_process = True
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: os.write(self._write_end, b"x"))

    @property
    def is_requested(self) -> bool:
        """True once the request was made."""
        return self._event.is_set()

    def wait(self, seconds: float) -> bool:
        """Sleeps for that long at most; True, at once, if asked to stop."""
        return self._event.wait(seconds)

    def on_request(self, cancel: Callable[[], object]) -> None:
        """Calls `cancel`, in place of the last one, when asked to stop, or now if already asked."""
        # The event is looked at after `cancel` is in its place; the thread that watches sets it
        # before it takes `cancel`. So one of the two calls it, maybe both.
        self._cancel = cancel
        if self._event.is_set():
            cancel()

    def _watch(self) -> None:
        os.read(self._read_end, 1)
        self._event.set()
        self._cancel()
        if self._has_process:  # an environment that hangs does not hold it up
            time.sleep(_CLOSING_SECONDS)
            os._exit(ExitCode.OK)


class HangLimit:
    """Ends the process, with all stacks, if the thread that steps takes too long for its work.

    That thread notes until when it will be done. Another one looks every half a second and, while
    nothing is overdue, winds up `faulthandler`'s timer again: a C thread, which ends the process
    with exit code 1 also if native code keeps the interpreter's lock and no thread of Python runs.
    Winding it up for each step would cost more than the step.
    """

    def __init__(self) -> None:
        self._until = math.inf  # written by the thread that steps, read by the one that looks
        self._thread = 0  # that steps
        self._seconds = 0.0  # of the work that was begun last
        self._pid = os.getpid()
        _start("hang limit", self._watch)

    def limit(self, seconds: float) -> Self:
        """In `with`: the calling thread works for so long at most; 0 for ever."""
        if seconds:
            self._until, self._thread = time.monotonic() + seconds, threading.get_ident()
        if seconds != self._seconds:  # it may let no thread look, from now on
            self._seconds = seconds
            self._look()
        return self

    # Not a generator's context: each step of each group passes here.
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        # A fork that an environment has made, and that came back from its step: the connection to
        # the learner, to which it would write next, is not its own.
        if os.getpid() != self._pid:
            os._exit(ExitCode.OK)
        self._until = math.inf

    def _watch(self) -> None:
        while True:
            self._look()
            time.sleep(_LOOK_SECONDS)

    def _look(self) -> None:
        if not self._seconds:
            faulthandler.cancel_dump_traceback_later()
            return
        left = self._until - time.monotonic()
        if left < 0:
            from seedrl.hints import innermost_own_place  # only once something fails

            # The thread may have ended its work, and itself, since.
            frame = sys._current_frames().get(self._thread)
            place = innermost_own_place(traceback.walk_stack(frame)) if frame else ""
            where = f" ({place})" if place else ""
            _log.error("an environment takes over %g s%s; the stacks:", self._seconds, where)
            faulthandler.dump_traceback_later(0.001, exit=True, file=_STDERR)
        else:
            # Work of that length may begin right after this look, and must end before the timer.
            seconds = min(left, self._seconds, _LONGEST_SECONDS) + 2 * _LOOK_SECONDS
            faulthandler.dump_traceback_later(seconds, exit=True, file=_STDERR)


def _start(name: str, work: Callable[[], object]) -> None:
    # Does `work` in a thread, without which a stop or a hang would go unnoticed: it ends all.
    def run() -> None:
        try:
            work()
        except BaseException:
            with contextlib.suppress(OSError):  # a closed terminal
                traceback.print_exc()
            os._exit(ExitCode.INTERNAL)

    threading.Thread(target=run, name=name, daemon=True).start()


def adopt_orphans() -> None:
    """Makes the kernel give this process the orphans among its descendants, in any session."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_with_parent(parent: int) -> None:
    """Has the kernel send SIGTERM when that process, the parent, dies. In the main thread."""
    # A daemon of an environment stays this process's as long as it lives: the supervisor, which
    # kills whatever it is given, gets the daemon only after that.
    adopt_orphans()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
    if os.getppid() != parent:  # it died before the kernel knew
        os.kill(os.getpid(), signal.SIGTERM)
