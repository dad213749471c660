"""A trace of a run's updates by jax.profiler (`seedrl train --profile-updates`)."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import jax

from learner.report.events import EventSink
from seedrl import run_files
from seedrl.errors import ConfigError

# Updates before the trace starts: the first ones still allocate, and fill caches.
_WARM_UP = 10


class CountsUpdates(Protocol):
    """Of `Learning`: its counters, which its thread raises."""

    num_applied: int
    num_skipped: int


class Profile:
    """Traces at least `num_updates` updates after a warm-up, once. Used by the main thread.

    All threads are in the trace, which is written when it ends. An error of the profiler is
    reported, and the run goes on.
    """

    def __init__(
        self, folder: Path, num_updates: int, *, learning: CountsUpdates, listener: EventSink
    ):
        """`folder`: of the trace; made when it is written."""
        self._folder, self._num_updates = folder, num_updates
        self._learning, self._listener = learning, listener
        self._started: int | None = None  # the count of updates when the trace began
        self._is_over = False

    def update(self) -> None:
        """Starts or ends the trace if that is due; called again and again."""
        if self._is_over or self._count < _WARM_UP:
            return
        if self._started is None:
            self._started = self._count
            self._guarded(self._start)
        elif self._count - self._started >= self._num_updates:
            self.close()

    def close(self) -> None:
        """Ends the trace if it is under way, and reports the file, or why there is none."""
        if self._is_over:
            return
        self._is_over = True
        if self._started is None:
            text = f"no profile: the run has ended before update {_WARM_UP} of this session"
            self._listener.report("learning", text, is_problem=True)
            return
        self._guarded(self._write)

    @property
    def _count(self) -> int:
        return self._learning.num_applied + self._learning.num_skipped

    def _start(self) -> None:
        run_files.make_folder(self._folder)
        jax.profiler.start_trace(self._folder)

    def _write(self) -> None:
        num_updates = self._count - (self._started or 0)
        jax.profiler.stop_trace()
        found = sorted(self._folder.rglob("*.trace.json.gz"))
        text = f"profile of {num_updates} updates: {found[-1] if found else self._folder}"
        text += " (open it at ui.perfetto.dev)"
        self._listener.report("learning", text, path=str(self._folder), updates=num_updates)

    def _guarded(self, work: Callable[[], object]) -> None:
        try:
            work()
        except (OSError, RuntimeError, ValueError, ConfigError) as error:
            self._is_over = True
            self._listener.report("learning", f"no profile: {error}", is_problem=True)
