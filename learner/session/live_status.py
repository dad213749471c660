"""What a run is doing, written once a second; what happens in it is written at once."""

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from learner.reporting.env_servers.attendance import EnvServers
from learner.reporting.env_servers.vacancies import Vacancies
from learner.reporting.events import Events
from learner.reporting.metrics import Metrics
from learner.reporting.status import ERROR, EnvServerStatus, State, Status, write_status
from learner.serving.hub import Hub
from learner.session.announcements import Announcements, StandStill
from learner.session.session import Session
from seedrl.config import Config

_INTERVAL_SECONDS = 1.0
_MOST_NAMES = 3
_COMPILING = "learning is being compiled, and acting may not run further ahead of it"
_BUILDING = "agent and replay are being built"

_logger = logging.getLogger(__name__)


class LiveStatus:
    """Writes `status.json`, the events, how many slots are live, and sequences when asked for. Owns
    a thread for that.

    What goes wrong here is logged, and never ends the run.

    Attributes:
      name: of the configuration.
      hub, session, announcements: once they are there; set by the main thread.
      metrics: the last report of the run; set by the main thread.
      address: where it serves; set by the main thread.
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
          config, name: the configuration, and what it is called.
          workdir: where `status.json` is written.
          events, metrics: what is flushed, and who gets the gauges of slots.
          show: also gets every status.
        """
        self._config, self.name, self._workdir = config, name, workdir
        self._events, self._metrics, self._show = events, metrics, show
        self._began = time.time()
        self._state_and_since: tuple[State, float] = ("starting", self._began)
        self.hub: Hub | None = None
        self.session: Session | None = None
        self.announcements: Announcements | None = None
        self.metrics: dict[str, float] = {}
        self.address = ""
        self._env_servers = EnvServers()
        self._still = StandStill(events, events.count_steps(), time.monotonic())
        self._vacancies = Vacancies(
            events,
            time.monotonic(),
            learns_without_all=config.learning.regime == "asynchronous",
        )
        self._ending: tuple[State, str] | None = None
        self._looked: tuple[float, int, int] | None = None  # when, and the counts then
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="status", daemon=True)
        self._thread.start()

    def holdup(self) -> str:
        """Who keeps environments from stepping, in words; for any thread."""
        session = self.session
        if session is not None and session.is_compiling:
            return _COMPILING
        if silent := waited_for(self._env_servers.servers):
            return silent
        if session is None:  # env servers that have joined wait until it is built
            return _BUILDING
        return "acting waits for learning, as the replay ratio wants"

    def stopping(self, reason: str) -> None:
        """The run has ended; what remains is to save."""
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
        if self.address and self._ending is None:
            self._still.look(self._events.count_steps(), time.monotonic(), self.holdup)
        if self.hub is not None:
            self._env_servers = self.hub.env_servers()
            self._gauges(self._env_servers)
            if self._ending is None:
                found = self._env_servers
                self._vacancies.look(found.training, found.evaluation, time.monotonic())
        status = self.now()
        write_status(self._workdir, status)
        self._show(status)

    def _gauges(self, found: EnvServers) -> None:
        lanes, metrics = (found.training, found.evaluation), self._metrics
        metrics.gauge("env_servers", sum(server.state != "left" for server in found.servers))
        metrics.gauge("slots_live", sum(lane.live for lane in lanes))
        metrics.gauge("slots_unfilled", sum(lane.total - lane.live for lane in lanes))
        metrics.gauge("slots_waiting", sum(lane.waiting for lane in lanes))
        metrics.gauge("slots_hung", sum(lane.hung for lane in lanes))
        metrics.gauge("slots_quarantined", found.quarantined)
        metrics.gauge("environment_failures", found.failures)
        metrics.gauge("connections_refused", found.refused)

    def now(self) -> Status:
        """What the run is doing. Rates are since the call before."""
        session, config = self.session, self._config
        env_steps = self._events.count_steps()
        updates = 0 if session is None else session.learning.updates
        steps_per_second, updates_per_second = 0.0, 0.0
        if session is not None:  # what is resumed was not done since the look before
            steps_per_second, updates_per_second = self._rates(env_steps, updates)
        state, reason = self._ending if self._ending is not None else (self._state(), "")
        now = time.time()
        if state != self._state_and_since[0]:
            self._state_and_since = (state, now)
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
            skipped_updates=int(self.metrics.get("skipped_updates", 0)),
            target_return=config.evaluation.target_return,
            training_return=self.metrics.get("return/training"),
            last_evaluation=None if self.announcements is None else self.announcements.last,
            best_evaluation=None if self.announcements is None else self.announcements.best,
            is_evaluating=session is not None and session.evaluator.is_running,
            env_steps_per_second=steps_per_second,
            updates_per_second=updates_per_second,
            replay_ratio=self.metrics.get("replay_ratio"),
            replay_ratio_target=self.metrics.get("replay_ratio_target"),
            policy_lag_updates=self.metrics.get("policy_lag_updates"),
            acting_waits_share=self.metrics.get("acting_waits_share"),
            learning_waits_share=self.metrics.get("learning_waits_share"),
            waiting_for=self.holdup() if steps_per_second == 0 and not self._ending else "",
            training_slots=self._env_servers.training,
            evaluation_slots=self._env_servers.evaluation,
            env_servers=self._env_servers.servers,
        )

    def _state(self) -> State:
        session = self.session
        if not self.address:
            return "starting"
        if not self._env_servers.training.live and not self._env_servers.evaluation.live:
            return "waiting"
        if session is None or session.is_compiling:
            return "compiling"
        return "evaluating" if session.evaluator.is_confirming else "training"

    def _rates(self, env_steps: int, updates: int) -> tuple[float, float]:
        before, now = self._looked, time.monotonic()
        self._looked = (now, env_steps, updates)
        if before is None:
            return 0.0, 0.0
        seconds = max(now - before[0], 1e-9)
        return (env_steps - before[1]) / seconds, (updates - before[2]) / seconds


def _guarded(work: Callable[[], None]) -> None:
    """Whatever goes wrong in what is merely shown, the run continues."""
    try:
        work()
    except Exception:
        _logger.exception("what the run does could not be written")


def waited_for(servers: Sequence[EnvServerStatus]) -> str:
    """Which env servers the learner waits for, in words; empty if for none."""
    present = [server for server in servers if server.state != "left"]
    if not present:
        return "no env server is connected"
    building = [server.name for server in present if server.state == "building"]
    if len(building) == len(present):
        return f"{_names(building)} {_verb(building, 'builds its', 'build their')} environments"
    ready = [server for server in present if server.state != "building"]
    training = [server for server in ready if server.training_slots]
    if not training:
        return "no connected env server has training slots"
    silent = [server for server in training if server.waiting_seconds]
    if len(silent) < len(training):
        return ""
    seconds = max(server.waiting_seconds for server in silent)
    names = [server.name for server in silent]
    return f"{_names(names)} {_verb(names, 'has', 'have')} sent no step for {seconds:.0f} s"


def _verb(names: Sequence[str], one: str, many: str) -> str:
    return one if len(names) == 1 else many


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMES])
    more = len(names) - _MOST_NAMES
    return f"{shown} and {more} more" if more > 0 else shown
