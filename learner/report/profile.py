"""A trace of a run's updates by jax.profiler (`seedrl train --profile-updates`)."""

from collections.abc import Callable
from pathlib import Path

import jax

from learner.report.events import EventSink
from seedrl import run_files
from seedrl.errors import ConfigError

# Updates before the trace starts: the first ones still allocate, and fill caches.
_WARM_UP = 10


class Profile:
    """Traces at least `num_updates` updates after a warm-up, once. Used by the main thread.

    All threads are in the trace, which is written when it ends. An error of the profiler is
    reported, and the run goes on.
    """

    def __init__(
        self, folder: Path, num_updates: int, *, count: Callable[[], int], listener: EventSink
    ):
        """`folder`: of the trace, made when it is written; `count` gives the updates so far.

        Without any updates to trace it does nothing.
        """
        self._folder, self._num_updates = folder, num_updates
        self._count, self._listener = count, listener
        self._started: int | None = None  # the count of updates when the trace began
        self._is_over = not num_updates

    def update(self) -> None:
        """Starts or ends the trace if that is due; called again and again."""
        if self._is_over or (count := self._count()) < _WARM_UP:
            return
        if self._started is None:
            self._started = count
            self._guarded(self._start)
        elif count - self._started >= self._num_updates:
            self.close()

    def close(self) -> None:
        """Ends the trace if it is under way, and reports the file, or why there is none."""
        if self._is_over:
            return
        self._is_over = True  # first: an error below must not start another trace
        if self._started is None:
            text = f"no profile: the run has ended before update {_WARM_UP} of this session"
            self._listener.report("learning", text, is_problem=True)
            return
        self._guarded(self._write)

    def _start(self) -> None:
        run_files.make_folder(self._folder)
        jax.profiler.start_trace(self._folder)

    def _write(self) -> None:
        num_updates = self._count() - (self._started or 0)
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
