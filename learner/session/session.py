"""A training session: acting and learning while they run."""

import functools
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Protocol

import jax
import numpy as np

from learner.acting.actor import over_slots
from learner.acting.evaluator import Score
from learner.hosts.agenda import Hosts, alone
from learner.learning.loop import Snapshot
from learner.reporting.metrics import Metrics
from learner.saving.recorder import Recorder
from learner.saving.saver import Best
from learner.serving.hub import Hub
from learner.serving.ledger import ACCOUNTS, ALWAYS, AT_REST, QUEUED, residues
from learner.session.components import NEW, Origin, Parts, assemble
from learner.session.free_running import FreeRunning
from learner.session.geometry import Geometry
from learner.session.lock_step import LockStep
from learner.session.rounds import Rounds
from learner.session.sharing.stuck import end_if_stuck
from learner.threads.exchange import Requests
from learner.threads.watchdog import Watchdog
from learner.threads.worker import Worker
from seedrl.agents.agent import replace_actor_params
from seedrl.config import Config
from seedrl.config_json import to_json
from seedrl.errors import ConfigError, UserError
from seedrl.spec_json import encode_spec
from seedrl.specs import EnvSpec
from seedrl.types import Tree


class Regime(Protocol):
    """How acting and learning share time: each in a thread of its own, or both in one.

    Attributes:
      bodies: what each thread repeats, by its name.
      snapshots: taken by one of them while they run, or by anybody after they have ended.
    """

    bodies: Mapping[str, Callable[[], object]]
    snapshots: Requests[bool, Snapshot]

    @property
    def is_compiling(self) -> bool:
        """Whether something is being compiled yet; that may take as long as it likes."""
        ...

    @property
    def can_insert(self) -> bool:
        """Whether what puts pages into replay is compiled."""
        ...

    def warm_up(self) -> None:
        """Compiles what must be compiled before the threads start."""
        ...

    def end_waits(self) -> None:
        """Makes threads that wait for each other look up, so that they can end."""
        ...


class Session:
    """Builds and runs acting and learning. Owned by the main thread.

    Attributes:
      acting, learning: what their threads do; read only counters of them from outside. Of several
        inference devices, acting of the first, which evaluates.
      evaluator: the evaluation's state.
      replay_bytes: size of one device's replay.
      failed: set when a thread has died.
      watchdog: ends the process if one of its threads hangs.
      begins_untrained: whether its first parameters are neither resumed nor another run's.
      hosts: that share the run.
    """

    def __init__(
        self,
        config: Config,
        geometry: Geometry,
        hub: Hub,
        spec: EnvSpec,
        metrics: Metrics,
        origin: Origin = NEW,
        recorder: Recorder | None = None,
        hosts: Hosts | None = None,
    ):
        """`hosts`: that share the run; None if there is no other."""
        self.hosts = hosts or alone()
        self._config = config
        self._spec = spec
        self._hub = hub
        self._metrics = metrics
        self._parts = assemble(
            config,
            geometry,
            hub=hub,
            spec=spec,
            metrics=metrics,
            origin=origin,
            hosts=self.hosts,
        )
        self.acting, self.learning = self._parts.acting[0], self._parts.learning
        self.evaluator = self.acting.evaluator
        self.replay_bytes = self._parts.replay_bytes
        self._limiter = self._parts.exchange.limiter
        self.failed = threading.Event()
        self.begins_untrained = origin == NEW
        self._regime = _regime(config, self._parts, hub, recorder)
        blamed = self.hosts.peers.blamed
        self.watchdog = Watchdog(
            functools.partial(end_if_stuck, self.hosts.peers, config.logging.stuck_seconds),
            is_compiling=lambda: self.is_compiling,
        )
        self._workers = [
            Worker(name, blamed(body), self.failed, self.watchdog.heartbeat(name))
            for name, body in self._regime.bodies.items()
        ]

    def start(self) -> None:
        """Compiles what acting needs, or for one thread everything, and starts the threads."""
        self.watchdog.start()
        self._regime.warm_up()
        for worker in self._workers:
            worker.start()

    @property
    def is_compiling(self) -> bool:
        """Whether learning waits for its programs."""
        return self._regime.is_compiling

    @property
    def failure(self) -> BaseException | None:
        """What a thread has died of."""
        return next((worker.failure for worker in self._workers if worker.failure), None)

    @property
    def is_refused(self) -> bool:
        """Whether it has died, before the first update, of what the user can put right.

        So it is with what is wrong in an agent: a thread that compiles finds it after the start.
        """
        num_learned = self.learning.num_applied + self.learning.num_skipped
        return isinstance(self.failure, ConfigError) and num_learned == 0

    def raise_failure(self) -> None:
        """Raises what a thread has died of: a UserError as it is, all else as a defect of ours."""
        failure = self.failure
        if isinstance(failure, UserError):
            raise failure
        if failure is not None:
            raise RuntimeError(f"a thread of the learner died: {failure}") from failure

    def gauges(self) -> None:
        """Sets the metrics that are states rather than events."""
        if (live := self._hub.live_slots("training")).size:
            rungs = self._parts.agent.exploration(self._config.serving.training_slots)
            own = self.hosts.peers.place.own(over_slots(np.asarray(rungs)))
            self._metrics.gauge("exploration_live_mean", float(np.mean(own[live])))
        for name, value in self._limiter.now.metrics().items():
            self._metrics.gauge(name, value)
        self._metrics.gauge("replay_sequences", self.learning.num_sequences)
        self._metrics.gauge("replay_fill", self.learning.replay_fill)
        for account, rows in self.accounts().items():
            self._metrics.gauge(f"ledger/{account}", rows)

    def accounts(self) -> dict[str, int]:
        """Rows in every account of the ledger; see `learner.serving.ledger`."""
        # Replay first: it only holds what had been completed before.
        stored = self.learning.stored_rows
        abandoned = self.acting.totals.abandoned_rows + self.learning.abandoned_rows
        learned = self.learning.accounts()
        accounts = {
            **self._hub.ledger(),
            **learned,
            "stored": stored,
            "stale": self.learning.stale_rows,
            "abandoned": abandoned,
        }
        return dict.fromkeys(ACCOUNTS, 0) | accounts

    def residues(self, *, at_rest: bool = False) -> list[str]:
        """What the ledger does not explain, one a line; see `learner.serving.ledger`.

        Args:
          at_rest: the session has stopped: nothing is on its way any more.
        """
        accounts = self.accounts()
        equations = [*AT_REST, *([QUEUED] if self.learning.accounts() else [])]
        broken = residues(accounts, equations if at_rest else ALWAYS)
        if accounts["stored"] > accounts.get("completed", 0):
            broken.append(f"ledger: stored {accounts['stored']}, more than were completed")
        return broken

    def meta(self, snapshot: Snapshot) -> dict[str, Any]:
        """What a checkpoint of `snapshot` says besides arrays."""
        return {
            "config": to_json(self._config),
            "env_spec": encode_spec(self._spec),
            "env_steps": self.acting.training_steps,
            "totals": self._metrics.totals(),
            "limiter": dict(self._limiter.now.counts()),
            **snapshot.meta,
        }

    def snapshot(self, *, with_replay: bool) -> Future[Snapshot]:
        """A copy of the state while it is learned from; never, if the thread that gives it ends."""
        return self._regime.snapshots.request(with_replay)

    def stop(self, timeout: float) -> bool:
        """Ends the threads after their present piece of work; whether they ended in time."""
        self._regime.end_waits()
        has_stopped = all([worker.stop(timeout) for worker in self._workers])
        self.watchdog.stop()
        if has_stopped and not self.failed.is_set():
            self.learning.finish_update()  # what is reported and saved knows whether it counts
            if self._regime.can_insert:  # else this thread would compile that, to end
                self.learning.insert_pages()
            self.learning.abandon_pages()
        return has_stopped

    def final_snapshot(self) -> Snapshot:
        """The state after `stop`; with the confirmed parameters, if there are any.

        So a run that has reached its target is played, and trained on, from what has reached it.
        """
        snapshot = self._regime.snapshots.take(self._config.checkpoint.replay)
        confirmed: Score | None = self.evaluator.confirmed
        if confirmed is None:
            return snapshot
        return snapshot._replace(
            confirmed=self._scored(confirmed, snapshot.state.params),
            meta={**snapshot.meta, "params_updates": confirmed.frozen.version},
        )

    def best(self, snapshot: Snapshot) -> Best | None:
        """What scored highest in this session, on the host; None if nothing was scored.

        Parameters that do not act are those of `snapshot`.
        """
        best = self.acting.best_score
        if best is None:
            return None
        params = self._scored(best.score, snapshot.state.params)
        meta = {
            "config": to_json(self._config),
            "env_spec": encode_spec(self._spec),
            "env_steps": best.env_steps,
            "evaluation": {"mean_return": best.score.mean, "episodes": len(best.score.returns)},
        }
        return Best(best.score.mean, best.score.frozen.version, params, meta)

    def _scored(self, score: Score, params: Tree) -> Tree:
        """The parameters that were scored, on the host; those that do not act are from `params`."""
        actor_params = jax.tree.map(np.asarray, score.frozen.params)
        return replace_actor_params(self._parts.agent.actor_params, params, actor_params)


def _regime(config: Config, parts: Parts, hub: Hub, recorder: Recorder | None) -> Regime:
    if config.learning.schedule == "deterministic":
        return LockStep(parts, hub, recorder)
    return Rounds(parts) if config.learning.schedule == "synchronous" else FreeRunning(parts)
