"""When a session is saved, what a checkpoint of it consists of, and the thread that writes it."""

import functools
import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

import jax
import numpy as np

from learner.acting.evaluator import Score
from learner.checkpoints.restoring import digests, is_other_task
from learner.checkpoints.run_folder import RunFolder
from learner.learning.loop import Snapshot
from learner.multihost.agreement import require_equal, save_once
from learner.processes.tuning import return_freed_memory
from learner.report.events import EventSink
from learner.report.metrics import Metrics
from learner.runtime.watchdog import Heartbeat
from learner.schedule import Session
from seedrl import checkpoints, stored_arrays
from seedrl.agents.agent import replace_actor_params
from seedrl.checkpoints import best_directory, best_return, encode_spec
from seedrl.config import Config
from seedrl.config_io import to_json
from seedrl.errors import CheckpointError
from seedrl.types import Tree

_logger = logging.getLogger(__name__)

# A session that is killed early, as first ones are, shall have something to resume from.
_FIRST_SAVE_SECONDS = 30.0
_THREAD = "saver"
_Counts = tuple[int, int, float | None]


class Checkpointer:
    """Takes snapshots of a session and writes them in the background, one at a time.

    Used by the main thread. A snapshot is taken by the thread that owns the state, between two
    updates; the thread `saver` writes it. So neither acting nor learning waits for a disk.

    Attributes:
      failure: why the newest state or, else, the best parameters are not saved; None if they are.
    """

    # Only `saver` writes below `checkpoints`, and sets `failure` and `_best_return`; the main
    # thread reads them, or joins it before the next save.

    def __init__(
        self,
        config: Config,
        session: Session,
        folder: RunFolder,
        *,
        metrics: Metrics,
        listener: EventSink,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._config, self._session, self._folder = config, session, folder
        self._metrics, self._listener = metrics, listener
        self._clock = clock
        self._hosts, best = session.system.hosts, folder.best()
        # Returns of two environments are not on one scale.
        is_comparable = best is not None and not is_other_task(best, config)
        self._best_return = best_return(best) if best and is_comparable else -math.inf
        self._has_learned = False
        self._next_save = clock() + config.checkpoint.interval_seconds
        # What `_counts` gave when the run was last saved in this session.
        self._saved: _Counts | None = None
        # The snapshot that is waited for, and what `_counts` gave before.
        self._asked: tuple[Future[Snapshot], _Counts] | None = None
        self._thread: threading.Thread | None = None
        self.failure: Exception | None = None
        self._heartbeat = Heartbeat(_THREAD)  # beats while a save is under way
        # A save that hangs does not end the run: training can go on without it.
        stuck_seconds = config.logging.stuck_seconds
        session.watchdog.watch(self._heartbeat, stuck_seconds, self._report_hang)

    def save_what_is_due(self) -> None:
        """Asks for a snapshot if a save is due, and starts the save once it is there."""
        # A snapshot waits while a save is under way: a save that hangs must not stop this thread.
        if self._thread is not None and self._thread.is_alive():
            return
        if (agreed := self._hosts.taken()) is not None:
            self._start(agreed)
            return
        if self._asked is None and self.is_due() and not self._is_saved():
            self._ask()
        if self._asked is not None and self._asked[0].done():
            (answer, counts), self._asked = self._asked, None
            self._start(answer.result())
            self._saved = counts

    def save_the_end(self) -> None:
        """Starts the last save, after the session has stopped."""
        while (agreed := self._hosts.taken()) is not None:
            self._start(agreed)  # as the other hosts do
        if self._session.failed.is_set():
            return
        self.wait()  # what is being saved is saved only if that succeeds
        # At the end replay has taken in what was on its way, and the parameters may be others.
        changes = self._config.checkpoint.replay or self._session.evaluator.confirmed
        if changes or not self._hosts.is_alone or not self._is_saved():
            self._start(self._last_snapshot())

    def wait(self) -> None:
        """Waits until the save that is under way, if any, is durable or has failed."""
        if self._thread is not None:
            self._thread.join()

    def is_due(self) -> bool:
        """True once an interval, and soon after the first update. Of several hosts on the first."""
        now = self._clock()
        # Until something is learned only the interval counts.
        if not self._has_learned and self._session.learning.num_applied > 0:
            self._has_learned = True
            self._next_save = min(self._next_save, now + _FIRST_SAVE_SECONDS)
        if now < self._next_save or not self._hosts.peers.topology.is_first:
            return False
        self._next_save = now + self._config.checkpoint.interval_seconds
        return True

    def _counts(self) -> _Counts:
        """Updates, environment steps, and the best score of this session."""
        # The score too: the last round, after all steps, may be the best.
        acting = self._session.acting
        best = None if acting.best_score is None else acting.best_score.mean
        return self._session.learning.updates, acting.training_steps, best

    def _is_saved(self) -> bool:
        """True if nothing has been acted, learned or scored higher since the last save."""
        return self.failure is None and self._saved == self._counts()

    def _ask(self) -> None:
        # Before the snapshot: what happens meanwhile is to be saved again.
        counts = self._counts()
        if not self._hosts.is_alone:
            # All take a snapshot before the same update.
            self._hosts.wants_save, self._saved = True, counts
            return
        # By the thread that learns, between two updates, of which one may take minutes.
        with_replay = self._config.checkpoint.replay
        self._asked = self._session.learning.request_snapshot(with_replay=with_replay), counts

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

    def _start(self, snapshot: Snapshot) -> None:
        self.wait()  # for the save before it; the end of a run has a deadline of its own
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
        saves = [functools.partial(self._save, snapshot, meta)]
        score = self._session.acting.best_score  # of this session
        if score is not None and score.mean > self._best_return:
            played = {"mean_return": score.mean, "episodes": len(score.episodes)}
            of_best = {**common, "env_steps": score.frozen.env_steps, "evaluation": played}
            params = self._scored(score, snapshot.state.params)
            # First: what is reported as the best score must not be lost to a state that cannot be
            # saved. Nor is the state lost to it.
            saves.insert(0, functools.partial(self._save_best, score, params, of_best))
        # One thread a save: a hang costs this save, and the end of a run joins it with a deadline.
        self._thread = threading.Thread(target=self._run, args=(saves,), name=_THREAD, daemon=True)
        self._thread.start()
        self._metrics.record("checkpoint", updates=int(snapshot.state.updates))

    def _report_hang(self) -> None:
        # Called by the watchdog's thread.
        reason = "a save has not ended within logging.stuck_seconds, and may wait for the disk of "
        reason += f"{self._folder.path}; until it ends there is no other"
        self._listener.report("save_failed", reason, reason=reason)

    # In the thread `saver`.

    def _run(self, saves: list[Callable[[], None]]) -> None:
        self._heartbeat.beat()
        failure = None
        for save in saves:  # the state comes last, and its failure counts more
            # Training continues: the disk may be freed. The end of the run raises what is missing,
            # and a defect of ours too: this thread must not die unnoticed.
            try:
                save()
            except Exception as error:
                failure, reason = error, str(error)
                if not isinstance(error, CheckpointError):
                    _logger.exception("saving failed")
                    kind = type(error).__name__
                    reason = f"cannot save: {kind}: {error}; this is a defect, see the log"
                self._listener.report("save_failed", reason, reason=reason)
        self.failure = failure
        # Not where what an update frees is kept for the next one, on purpose.
        if not self._config.learning.keep_freed_memory:
            return_freed_memory()
        self._heartbeat.rest()

    def _save(self, snapshot: Snapshot, meta: dict[str, Any]) -> None:
        peers, step = self._hosts.peers, int(snapshot.state.updates)
        if not self._hosts.is_alone:
            arrays = stored_arrays.named(snapshot.state._asdict())
            require_equal(peers, step, digests(arrays)["all"])
        save_once(peers, functools.partial(self._write, snapshot, meta, step))

    def _write(self, snapshot: Snapshot, meta: dict[str, Any], step: int) -> None:
        start, arrays = time.monotonic(), snapshot.state._asdict()
        if snapshot.confirmed is not None:
            arrays["params"] = snapshot.confirmed.params
        if snapshot.replay:
            arrays["replay"], meta["replay_indices"] = snapshot.replay, snapshot.indices
        keep = self._config.checkpoint.keep
        path = checkpoints.save(self._folder.checkpoints, step, arrays, meta, keep=keep)
        seconds = time.monotonic() - start
        text = f"saved the checkpoint of update {step:,} in {seconds:.1f} s: {path}"
        self._listener.report("saved", text, path=str(path), updates=step, seconds=seconds)

    def _save_best(self, score: Score, params: Tree, meta: Mapping[str, Any]) -> None:
        directory, step = best_directory(self._folder.path), score.frozen.version
        checkpoints.save(directory, step, {"params": params}, meta, keep=1)
        self._best_return = score.mean
