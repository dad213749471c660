"""Notices from a thread of its own that an environment hangs, or that the process has grown."""

import contextlib
import math
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Generic, NamedTuple, TypeVar

from seedrl.exit_codes import ExitCode

# Between two looks, each a quarter of a millisecond of CPU where a process does nothing else; one
# that comes later than by that was suspended, and so was what it watches, if it has not computed.
_LOOK_SECONDS = 0.5
_LATE_SECONDS = 1.3
# For an environment that hangs while the process is asked to end.
_END_SECONDS = 3.0
# What keeps the interpreter's lock lets no thread look: it gets so much more of the processor.
_LOCKED_SECONDS = 2.0

Work = TypeVar("Work")


class Begun(NamedTuple, Generic[Work]):
    """What a thread is at, since when by the clock, and after what time it is overdue."""

    thread: int
    work: Work
    seconds: float
    limit_seconds: float

    def frames(self) -> list[FrameType]:
        """Where the thread is, outermost first."""
        frame = sys._current_frames().get(self.thread)
        frames: list[FrameType] = []
        while frame is not None:
            frames.append(frame)
            frame = frame.f_back
        return frames[::-1]


class Watch(Generic[Work]):
    """What each thread is at, one thing at a time, for others to see.

    Each step of a group passes here: that costs a clock and two stores.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        allow_computing: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        """Nothing is begun.

        Args:
          clock: gives monotonic seconds.
          allow_computing: takes for how long the process may compute until the next call, in
            seconds; 0 for ever.
        """
        self._clock, self._allow_computing = clock, allow_computing
        self._begun: dict[int, tuple[Work, float, float]] = {}  # by thread
        self._limit_seconds = math.inf  # of what was begun last

    def begin(self, work: Work, limit_seconds: float) -> None:
        """The thread of this call begins `work`, which is overdue after that time."""
        limit_seconds = limit_seconds or math.inf
        if limit_seconds != self._limit_seconds:  # it may let nobody else look, from now on
            self._limit_seconds = limit_seconds
            self._allow(limit_seconds)
        self._begun[threading.get_ident()] = (work, self._clock(), limit_seconds)

    def end(self) -> None:
        """What the thread of this call has begun has ended."""
        del self._begun[threading.get_ident()]

    def allow_more(self) -> None:
        """Sets the limit of computing time anew, by what is at work, or else was at work last.

        What keeps the interpreter's lock lets nobody call this.
        """
        limits = (begun.limit_seconds for begun in self.current)
        self._allow(min(limits, default=self._limit_seconds))

    def allow_for_ever(self) -> None:
        """Nobody looks any more."""
        self._allow(math.inf)

    def _allow(self, seconds: float) -> None:
        self._allow_computing(0.0 if math.isinf(seconds) else seconds + _LOCKED_SECONDS)

    @property
    def current(self) -> list[Begun[Work]]:
        """What was begun and has not ended; any thread may ask."""
        # The copy is one step of the interpreter: the threads begin and end meanwhile.
        return [Begun(thread, *begun) for thread, begun in self._begun.copy().items()]


class Watchdog(Generic[Work]):
    """Looks at a watch, and at this process's memory. Owns a thread, which calls what it is given.

    Time in which the whole process did not run, because it was suspended, does not count.
    """

    def __init__(
        self,
        watch: Watch[Work],
        *,
        on_overdue: Callable[[Begun[Work]], None],
        on_grown: Callable[[int], bool] = lambda mib: True,
        is_stopping: Callable[[], bool] = lambda: False,
        max_memory_mib: int = 0,
        leave: Callable[[int], object] = os._exit,
    ) -> None:
        """Starts it. Ends the process if it fails itself: nobody else would notice what hangs.

        Args:
          watch: what is looked at.
          on_overdue: takes what is overdue; once for each.
          on_grown: takes the resident memory in MiB once it is beyond `max_memory_mib`, until it
            says that it does something about that.
          is_stopping: whether the process was asked to end.
          max_memory_mib: 0 for no limit.
          leave: ends the process.
        """
        self._leave = leave
        self._watch, self._on_overdue = watch, on_overdue
        self._on_grown, self._is_stopping = on_grown, is_stopping
        self._max_memory_mib = max_memory_mib or math.inf
        self._seen: list[Begun[Work]] = []  # what was overdue last
        self._has_closed = threading.Event()
        self._thread = threading.Thread(target=self._guarded, name="watchdog", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread."""
        self._has_closed.set()
        self._thread.join()
        self._watch.allow_for_ever()

    def _guarded(self) -> None:
        try:
            self._run()
        except BaseException:
            with contextlib.suppress(OSError):  # nobody reads it any more
                print(f"{traceback.format_exc()}the watchdog failed", file=sys.stderr, flush=True)
            self._leave(ExitCode.INTERNAL)

    def _run(self) -> None:
        last, last_computed = time.monotonic(), time.process_time()
        resumed, stopping_since = -math.inf, math.inf
        while not self._has_closed.wait(_LOOK_SECONDS):
            now, computed = time.monotonic(), time.process_time()
            # What has computed meanwhile was not suspended: it kept the interpreter's lock.
            if now - last > _LATE_SECONDS and 2 * (computed - last_computed) < now - last:
                resumed = now
            last, last_computed = now, computed
            if self._is_stopping():
                stopping_since = min(stopping_since, now)
            self._look(now, resumed, stopping_since)
            if (mib := resident_mib()) > self._max_memory_mib and self._on_grown(mib):
                self._max_memory_mib = math.inf

    def _look(self, now: float, resumed: float, stopping_since: float) -> None:
        current = self._watch.current
        self._watch.allow_more()
        if any(now - max(begun.seconds, stopping_since) > _END_SECONDS for begun in current):
            os._exit(0)  # it would never hear that it was asked to end
        overdue = [
            begun for begun in current if now - max(begun.seconds, resumed) > begun.limit_seconds
        ]
        new = [begun for begun in overdue if begun not in self._seen]
        self._seen = overdue
        for begun in new:
            self._on_overdue(begun)


def resident_mib() -> int:
    """Memory of this process, in MiB; 0 where that is not known."""
    try:
        file = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:  # a third of the calls to the kernel that a file object makes
        pages = int(os.read(file, 256).split()[1])
    finally:
        os.close(file)
    return pages * os.sysconf("SC_PAGE_SIZE") // 2**20
