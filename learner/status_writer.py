"""The thread that shows a run: `status.json` once a second, events as soon as they happen."""

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from learner.progress_reporter import ProgressReporter
from learner.report.env_servers import EnvServers
from learner.report.events import Events
from learner.report.metrics import Metrics
from learner.report.status import (
    ERROR,
    Confirmation,
    EnvServerStatus,
    State,
    Status,
    write_status,
)
from learner.schedule import Session
from learner.serving.hub import Hub
from seedrl.config import Config

_INTERVAL_SECONDS = 1.0
# The time without a step after which that is reported, and then at each doubling.
_STILL_SECONDS = 10.0
_MOST_NAMES = 3

_logger = logging.getLogger(__name__)


class StatusWriter:
    """Writes `status.json` and the events, and reports whether environments step. Owns a thread.

    The main thread sets the attributes below, and closes this; an error here is logged, and never
    ends the run.

    Attributes:
      name: of the configuration.
      hub, session, progress: once they exist.
      metrics: last value of every metric.
      address: where the run serves.
      compiling_since: when compilation started, in monotonic seconds; None before.
    """

    def __init__(
        self,
        config: Config,
        name: str,
        workdir: Path,
        *,
        events: Events,
        metrics: Metrics,
        show: Callable[[Status], None],
    ):
        """Starts the thread.

        Args:
          config, name: the configuration and its name.
          workdir: where `status.json` is written.
          events, metrics: what is flushed, and what gets the gauges of slots.
          show: also gets every status.
        """
        self._config, self.name, self._workdir = config, name, workdir
        self._events, self._metrics, self._show = events, metrics, show
        self._began = time.time()
        self._state_and_since: tuple[State, float] = ("starting", self._began)
        self.hub: Hub | None = None
        self.session: Session | None = None
        self.progress: ProgressReporter | None = None
        self.metrics: dict[str, float] = {}
        self.address = ""
        self.compiling_since: float | None = None
        self._env_servers = EnvServers()
        self._ending: tuple[State, str] | None = None
        # When, and the environment steps and updates then.
        self._before: tuple[float, int, int] | None = None
        self._steps = StandStill(events, events.count_steps(), time.monotonic())
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="status", daemon=True)
        self._thread.start()

    def stopping(self, reason: str) -> None:
        """The run has ended; it only has to be saved."""
        self._ending = ("stopping", reason)

    def close(self) -> None:
        """Writes for the last time."""
        self._is_over.set()
        self._events.wake()
        self._thread.join()
        self._ending = ("finished", self._ending[1] if self._ending is not None else ERROR)
        _guarded(self._look)
        _guarded(self._events.flush)

    def _run(self) -> None:
        next_look = 0.0
        while not self._is_over.is_set():
            self._events.wait(max(0.0, next_look - time.monotonic()))
            _guarded(self._events.flush)
            if time.monotonic() >= next_look:
                next_look = time.monotonic() + _INTERVAL_SECONDS
                _guarded(self._look)

    def _look(self) -> None:
        if self.hub is not None:
            self._env_servers = self.hub.env_servers()
            self._gauges(self._env_servers)
        status = self.now()
        if self.address and self._ending is None:
            now = time.monotonic()
            if status.state == "compiling":  # that it takes long is no news
                self._steps = StandStill(self._events, status.env_steps, now)
            else:
                self._steps.look(status.env_steps, now, status.waiting_for)
        write_status(self._workdir, status)
        self._show(status)

    def _gauges(self, found: EnvServers) -> None:
        roles, metrics = (found.training, found.evaluation), self._metrics
        metrics.gauge("env_servers", sum(server.state != "left" for server in found.servers))
        metrics.gauge("slots_live", sum(slots.live for slots in roles))
        metrics.gauge("slots_unfilled", sum(slots.total - slots.live for slots in roles))
        metrics.gauge("slots_waiting", sum(slots.waiting for slots in roles))
        metrics.gauge("slots_hung", sum(slots.hung for slots in roles))
        metrics.gauge("slots_quarantined", found.quarantined)
        metrics.gauge("environment_failures", found.failures)
        metrics.gauge("connections_refused", found.refused)

    def now(self) -> Status:
        """The state of the run. Rates are since the call before."""
        session, config, progress = self.session, self._config, self.progress
        env_steps = self._events.count_steps()
        updates = 0 if session is None else session.learning.updates
        steps_per_second, updates_per_second = self._rates(env_steps, updates)
        state, reason = self._ending if self._ending is not None else (self._state(), "")
        now = time.time()
        if state != self._state_and_since[0]:
            self._state_and_since = (state, now)
        waits = steps_per_second == 0 and self._ending is None
        return Status(
            time_seconds=now,
            state=state,
            state_since_seconds=self._state_and_since[1],
            reason=reason,
            config=self.name,
            pid=os.getpid(),
            host=socket.gethostname(),
            address=self.address,
            started_seconds=self._began,
            elapsed_seconds=self._events.elapsed_seconds,
            env_steps=env_steps,
            total_steps=config.learning.total_steps,
            updates=updates,
            env_steps_per_second=steps_per_second,
            updates_per_second=updates_per_second,
            target_return=config.evaluation.target_return,
            last_evaluation=None if progress is None else progress.last,
            best_evaluation=None if progress is None else progress.best,
            confirmation=self._confirmation(),
            waiting_for=self._waiting_for(state) if waits else "",
            training_slots=self._env_servers.training,
            evaluation_slots=self._env_servers.evaluation,
            env_servers=self._env_servers.servers,
            metrics=self.metrics,
        )

    def _state(self) -> State:
        session = self.session
        if not self.address:
            return "starting"
        if not self._env_servers.training.live and not self._env_servers.evaluation.live:
            return "waiting"
        progress = self.progress
        # The session's main thread may compile before there is a ProgressReporter.
        if session is None or progress is None or session.is_compiling or progress.is_compiling:
            return "compiling"
        return "evaluating" if session.evaluator.is_confirming else "training"

    def _waiting_for(self, state: State) -> str:
        """Reason why no environment steps."""
        if state in ("starting", "compiling"):
            return state
        waited = waited_for(self._env_servers.servers)
        return waited or "acting waits for learning, as the replay ratio requires"

    def _confirmation(self) -> Confirmation | None:
        playing = None if self.session is None else self.session.evaluator.confirmation
        if playing is None:
            return None
        returns = playing.returns
        return Confirmation(
            ended=len(returns),
            episodes=playing.episodes,
            slots=playing.num_slots,
            mean_return=float(np.mean(returns)) if returns else None,
        )

    def _rates(self, env_steps: int, updates: int) -> tuple[float, float]:
        if self.session is None:  # the steps of earlier sessions are no rate
            return 0.0, 0.0
        before, now = self._before, time.monotonic()
        self._before = (now, env_steps, updates)
        if before is None:
            return 0.0, 0.0
        seconds = max(now - before[0], 1e-9)
        return (env_steps - before[1]) / seconds, (updates - before[2]) / seconds


class StandStill:
    """Reports that environments take no steps, after 10 s and at each doubling. Of one thread."""

    def __init__(self, events: Events, steps: int, now: float):
        """`steps`: their number at the time `now`."""
        self._events = events
        self._steps, self._moved = steps, now
        self._next = _STILL_SECONDS

    def look(self, steps: int, now: float, waiting_for: str) -> None:
        """Takes the number of steps, and the reason why there are no new ones."""
        seconds = now - self._moved
        if steps == self._steps:
            if seconds >= self._next:
                self._next = 2 * seconds
                text = f"0 steps/s for {seconds:.0f} s: {waiting_for}"
                self._report(text, seconds, waiting_for, is_problem=True)
            return
        if self._next > _STILL_SECONDS:  # it was reported
            self._report(f"environments step again after {seconds:.0f} s", seconds)
        self._steps, self._moved, self._next = steps, now, _STILL_SECONDS

    def _report(
        self, text: str, seconds: float, waiting_for: str = "", *, is_problem: bool = False
    ) -> None:
        about = {"seconds": seconds, "waiting_for": waiting_for}
        self._events.report("waiting", text, is_problem=is_problem, **about)


def _guarded(work: Callable[[], None]) -> None:
    """Logs what goes wrong: the run does not need what is only shown."""
    try:
        work()
    except Exception:
        _logger.exception("cannot write the status or the events of the run")


def waited_for(servers: Sequence[EnvServerStatus]) -> str:
    """The env servers that the learner waits for, in words; empty if there are none."""
    present = [server for server in servers if server.state != "left"]
    if not present:
        return "no env server is connected"
    ready = [server for server in present if server.state != "building"]
    if not ready:
        return f"environments are being built by {_names(present)}"
    training = [server for server in ready if server.training_slots]
    if not training:
        return "no connected env server has training slots"
    silent = [server for server in training if server.waiting_seconds]
    if len(silent) < len(training):
        return ""
    seconds = max(server.waiting_seconds for server in silent)
    return f"no step for {seconds:.0f} s from {_names(silent)}"


def _names(servers: Sequence[EnvServerStatus]) -> str:
    shown = ", ".join(server.name for server in servers[:_MOST_NAMES])
    more = len(servers) - _MOST_NAMES
    return f"{shown} and {more} more" if more > 0 else shown
