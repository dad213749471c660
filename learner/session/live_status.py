"""What a run is doing, written once a second; what happens in it is written at once."""

import os
import threading
import time
from pathlib import Path

from learner.reporting.events import Events
from learner.reporting.status import Slots, State, Status, write_status
from learner.serving.hub import Hub
from learner.session.session import Session
from seedrl.config import Config

_INTERVAL_SECONDS = 1.0


class LiveStatus:
    """Writes `status.json` and the events. Owns a thread, which is on nobody's way.

    Attributes:
      session: once there is one; set by the main thread.
      metrics: the last report of the run; set by the main thread.
      address: where it serves; set by the main thread.
    """

    def __init__(self, config: Config, name: str, workdir: Path, *, hub: Hub, events: Events):
        """Starts the thread. `name`: of the configuration."""
        self._config, self._name, self._workdir = config, name, workdir
        self._hub, self._events = hub, events
        self._began = time.time()
        self.session: Session | None = None
        self.metrics: dict[str, float] = {}
        self.address = ""
        self._ending: tuple[State, str] | None = None
        self._looked: tuple[float, int, int] | None = None  # when, and the counts then
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="status", daemon=True)
        self._thread.start()

    def stopping(self, reason: str) -> None:
        """The run has ended; what remains is to save."""
        self._ending = ("stopping", reason)

    def close(self) -> None:
        """Writes for the last time."""
        self._is_over.set()
        self._thread.join()
        self._ending = ("finished", self._ending[1] if self._ending is not None else "")
        write_status(self._workdir, self.now())
        self._events.flush()

    def _run(self) -> None:
        next_look = 0.0
        while not self._is_over.is_set():
            self._events.wait(max(0.0, next_look - time.monotonic()))
            self._events.flush()
            if time.monotonic() >= next_look:
                next_look = time.monotonic() + _INTERVAL_SECONDS
                write_status(self._workdir, self.now())

    def now(self) -> Status:
        """What the run is doing. Rates are since the call before."""
        session, config = self.session, self._config
        env_steps = 0 if session is None else session.acting.training_steps
        updates = 0 if session is None else session.learning.updates
        steps_per_second, updates_per_second = self._rates(env_steps, updates)
        state, reason = self._ending if self._ending is not None else (self._state(), "")
        return Status(
            time_seconds=time.time(),
            state=state,
            reason=reason,
            config=self._name,
            pid=os.getpid(),
            address=self.address,
            started_seconds=self._began,
            elapsed_seconds=self._events.elapsed_seconds,
            env_steps=env_steps,
            total_steps=config.learning.total_steps,
            updates=updates,
            skipped_updates=int(self.metrics.get("skipped_updates", 0)),
            target_return=config.evaluation.target_return,
            training_return=self.metrics.get("return/training"),
            is_evaluating=session is not None and session.evaluator.is_running,
            env_steps_per_second=steps_per_second,
            updates_per_second=updates_per_second,
            replay_ratio=self.metrics.get("replay_ratio"),
            replay_ratio_target=self.metrics.get("replay_ratio_target"),
            policy_lag_updates=self.metrics.get("policy_lag_updates"),
            acting_waits_share=self.metrics.get("acting_waits_share"),
            learning_waits_share=self.metrics.get("learning_waits_share"),
            training_slots=Slots(total=config.serving.training_slots),
            evaluation_slots=Slots(total=config.serving.evaluation_slots),
        )

    def _state(self) -> State:
        if self.session is None:
            return "waiting" if self.address else "starting"
        if self.session.is_compiling:
            return "compiling"
        return "training"

    def _rates(self, env_steps: int, updates: int) -> tuple[float, float]:
        before, now = self._looked, time.monotonic()
        self._looked = (now, env_steps, updates)
        if before is None:
            return 0.0, 0.0
        seconds = max(now - before[0], 1e-9)
        return (env_steps - before[1]) / seconds, (updates - before[2]) / seconds
