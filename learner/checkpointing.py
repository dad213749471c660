"""When a session is saved, and what a checkpoint of it consists of."""

from collections.abc import Callable
from concurrent.futures import wait
from typing import Any

import jax
import numpy as np

from learner.acting.evaluator import Score
from learner.checkpoints.saver import Best, Saver
from learner.learning.loop import Snapshot
from learner.report.metrics import Metrics
from learner.schedule import Session
from seedrl.agents.agent import replace_actor_params
from seedrl.checkpoints import encode_spec
from seedrl.config import Config
from seedrl.config_io import to_json
from seedrl.timing import POLL_SECONDS
from seedrl.types import Tree


class Checkpointer:
    """Takes snapshots of a session and hands them to the saver. Used by the main thread.

    A snapshot is taken by the thread that owns the state, between two updates; the saver's thread
    writes it. So neither acting nor learning waits for a disk.
    """

    def __init__(
        self,
        config: Config,
        session: Session,
        saver: Saver,
        metrics: Metrics,
        *,
        is_over: Callable[[], bool],
    ):
        """`is_over`: called while a snapshot is waited for: True if the run is over; may raise."""
        self._config, self._session, self._saver = config, session, saver
        self._metrics, self._is_over = metrics, is_over
        self._hosts = session.system.hosts
        # What `_counts` gave when the run was last saved in this session.
        self._saved: tuple[int, int, float | None] | None = None

    def save_what_is_due(self) -> None:
        """Starts a save if one is due."""
        # A snapshot waits while a save is under way: a save that hangs must not stop this thread.
        if not self._saver.is_busy and (agreed := self._hosts.taken()) is not None:
            self._start(agreed)
        elif (
            self._saver.take_turn(has_learned=self._session.learning.num_applied > 0)
            and not self._is_saved()
        ):
            self._save()

    def save_the_end(self) -> None:
        """Starts the last save, after the session has stopped."""
        while (agreed := self._hosts.taken()) is not None:
            self._start(agreed)  # as the other hosts do
        if self._session.failed.is_set():
            return
        # At the end replay has taken in what was on its way, and the parameters may be others.
        changes = self._config.checkpoint.replay or self._session.evaluator.confirmed
        if changes or not self._hosts.is_alone or not self._is_saved():
            self._start(self._last_snapshot())

    def _counts(self) -> tuple[int, int, float | None]:
        """Updates, environment steps, and the best score of this session."""
        # The score too: the last round, after all steps, may be the best.
        acting = self._session.acting
        best = None if acting.best_score is None else acting.best_score.mean
        return self._session.learning.updates, acting.training_steps, best

    def _is_saved(self) -> bool:
        """True if nothing has been acted, learned or scored higher since the last save."""
        return self._saver.failure is None and self._saved == self._counts()

    def _save(self) -> None:
        # Before the snapshot: what happens meanwhile is to be saved again.
        counts = self._counts()
        if not self._hosts.is_alone:
            # All take a snapshot before the same update.
            self._hosts.wants_save, self._saved = True, counts
            return
        # Between two updates, by the thread that learns.
        with_replay = self._config.checkpoint.replay
        answer = self._session.learning.request_snapshot(with_replay=with_replay)
        while not answer.done():
            if self._is_over():
                answer.cancel()  # it is never taken, or taken for nobody
                return
            # Not for ever: the thread that would answer may die, and then the run is over.
            wait([answer], POLL_SECONDS)
            self._metrics.write()  # an update may take minutes
        self._start(answer.result())
        self._saved = counts

    def _start(self, snapshot: Snapshot) -> None:
        # What both checkpoints need to be played: the agent, and what it was made for.
        common: dict[str, Any] = {
            "config": to_json(self._config),
            "env_spec": encode_spec(self._session.system.spec),
        }
        meta = {
            **common,
            "env_steps": snapshot.env_steps,
            "totals": self._metrics.totals(),  # counts and time, which a resumed run continues
            "limiter": snapshot.limiter,
        }
        if snapshot.confirmed is not None:
            meta["params_updates"] = snapshot.confirmed.version
        best = None
        if (score := self._session.acting.best_score) is not None:  # of this session
            played = {"mean_return": score.mean, "episodes": len(score.episodes)}
            of_best = {**common, "env_steps": score.frozen.env_steps, "evaluation": played}
            params = self._scored(score, snapshot.state.params)
            best = Best(score.mean, score.frozen.version, params, of_best)
        self._saver.start(snapshot, meta, best)
        self._metrics.record("checkpoint", updates=int(snapshot.state.updates))

    def _last_snapshot(self) -> Snapshot:
        """The state at the end; with the confirmed parameters, if there are any.

        So a run that has reached its target is played, and trained on, from what has reached it.
        """
        snapshot = self._session.learning.snapshot(with_replay=self._config.checkpoint.replay)
        confirmed = self._session.evaluator.confirmed
        if confirmed is None:
            return snapshot
        params = self._scored(confirmed, snapshot.state.params)
        return snapshot._replace(confirmed=confirmed.frozen._replace(params=params))

    def _scored(self, score: Score, params: Tree) -> Tree:
        """The parameters that were scored, on the host; those that do not act are from `params`."""
        # Maybe views of the device's buffers: these are published copies, which nothing consumes.
        actor_params = jax.tree.map(np.asarray, score.frozen.params)
        return replace_actor_params(self._session.system.agent.actor_params, params, actor_params)
