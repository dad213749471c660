"""Checkpoints of a run, written by a thread of its own."""

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from learner.checkpoints.restoring import digests
from learner.checkpoints.run_folder import RunFolder
from learner.learning.loop import Snapshot
from learner.multihost.agreement import require_equal
from learner.multihost.peers import Peers
from learner.processes.tuning import return_freed_memory
from learner.report.events import NO_SINK, EventSink
from learner.runtime.watchdog import Heartbeat
from seedrl import checkpoints, stored_arrays
from seedrl.checkpoints import best_directory, best_return
from seedrl.config import Config
from seedrl.errors import CheckpointError
from seedrl.types import Tree

_logger = logging.getLogger(__name__)

_FIRST_SAVE_SECONDS = 30.0
_THREAD = "saver"


class Best(NamedTuple):
    """Parameters that scored higher than all before."""

    mean_return: float
    updates: int
    params: Tree  # on the host
    meta: Mapping[str, Any]


class Saver:
    """Decides when to save, and writes snapshots in the background, one at a time."""

    # The main thread owns it. Only a save's thread writes below `checkpoints`, and sets `failure`
    # and `_best_return`; the main thread reads them, or joins that thread before the next save.

    def __init__(
        self,
        workdir: Path,
        keep: int,
        interval_seconds: float = math.inf,
        *,
        first_seconds: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
        best_return: float = -math.inf,
        listener: EventSink = NO_SINK,
        peers: Peers | None = None,
        after: Callable[[], object] | None = None,
    ):
        """Keeps `keep` checkpoints below the run's directory `workdir`, and the best one."""
        # `interval_seconds` are between two decisions to save, `first_seconds` at most from the
        # first update to the first decision. `best_return` is the score of the best checkpoint that
        # there is. `peers` are the other hosts of a run, of which the first one writes. `after` is
        # called by the thread that has saved, or failed to.
        self._peers, self._after = peers or Peers(), after
        self._workdir = workdir
        self._best_return = best_return
        self._keep = keep
        self._interval_seconds, self._first_seconds = interval_seconds, first_seconds
        self._has_learned = False
        self._clock = clock
        self._listener = listener
        self._next_save = clock() + interval_seconds
        self._thread: threading.Thread | None = None
        # Why the newest state or, else, the best parameters are not saved; None if they are.
        self.failure: Exception | None = None
        self.heartbeat = Heartbeat(_THREAD)  # beats while a save is under way

    @property
    def is_busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def take_turn(self, *, has_learned: bool = False) -> bool:
        """Whether a save is due; if it is, the next one is due an interval later."""
        now = self._clock()
        if has_learned and not self._has_learned:
            self._has_learned = True
            # Nothing learned, nothing to resume: until then there is no first save.
            self._next_save = min(self._next_save, now + self._first_seconds)
        if now < self._next_save or self.is_busy:
            return False
        self._next_save = now + self._interval_seconds
        return True

    def report_hang(self) -> None:
        """Reports that the save takes very long; called by the watchdog's thread."""
        reason = "a save has not ended within logging.stuck_seconds, and may wait for the disk of "
        reason += f"{self._workdir}; until it ends there is no other"
        self._listener.report("save_failed", reason, reason=reason)

    def start(self, snapshot: Snapshot, meta: Mapping[str, Any], best: Best | None = None) -> None:
        """Starts a save; waits for the one before it."""
        self.wait()  # the end of a run has a deadline of its own
        arguments = (snapshot, dict(meta), best)
        # One thread a save: a hang costs this save, and the end of a run joins it with a deadline.
        self._thread = threading.Thread(target=self._run, args=arguments, name=_THREAD, daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Waits until the save that is under way, if any, is durable or has failed."""
        if self._thread is not None:
            self._thread.join()

    def _run(self, snapshot: Snapshot, meta: dict[str, Any], best: Best | None) -> None:
        self.heartbeat.beat()
        # First: what is reported as the best score must not be lost to a state that cannot be
        # saved. Nor is the state lost to it.
        best_failure = None
        if best is not None and best.mean_return > self._best_return:
            best_failure = self._guarded(self._save_best, best)
        self.failure = self._guarded(self._save, snapshot, meta) or best_failure
        if self._after is not None:
            self._after()
        self.heartbeat.rest()

    def _guarded(self, write: Callable[..., None], *arguments: object) -> Exception | None:
        # Training continues: the disk may be freed. The end of the run raises what is missing, and
        # a defect of ours too: this thread must not die unnoticed.
        try:
            write(*arguments)
        except Exception as error:
            reason = str(error)
            if not isinstance(error, CheckpointError):
                _logger.exception("saving failed")
                reason = (
                    f"cannot save: {type(error).__name__}: {error}; this is a defect, see the log"
                )
            self._listener.report("save_failed", reason, reason=reason)
            return error
        return None

    def _save(self, snapshot: Snapshot, meta: dict[str, Any]) -> None:
        step, start = int(snapshot.state.updates), time.monotonic()
        arrays = snapshot.state._asdict()
        if self._peers.topology.process_count > 1:
            require_equal(self._peers, step, digests(stored_arrays.named(arrays))["all"])
            if not self._peers.topology.is_first:
                return  # all hosts have one state, which the first one writes
        if snapshot.confirmed is not None:
            arrays["params"] = snapshot.confirmed.params
        if snapshot.replay:
            arrays["replay"], meta["replay_indices"] = snapshot.replay, snapshot.indices
        directory = self._workdir / "checkpoints"
        path = checkpoints.save(directory, step, arrays, meta, keep=self._keep)
        seconds = time.monotonic() - start
        text = f"saved the checkpoint of update {step:,} in {seconds:.1f} s: {path}"
        self._listener.report("saved", text, path=str(path), updates=step, seconds=seconds)

    def _save_best(self, best: Best) -> None:
        arrays = {"params": best.params}
        directory = best_directory(self._workdir)
        checkpoints.save(directory, best.updates, arrays, best.meta, keep=1)
        self._best_return = best.mean_return


def open_saver(
    config: Config,
    folder: RunFolder,
    resumed: checkpoints.Checkpoint | None,
    listener: EventSink,
    peers: Peers,
) -> Saver:
    """A run's; see `Saver`. `resumed` is what it goes on from, if from anything."""
    best, decides = folder.best(), peers.topology.is_first
    return Saver(
        folder.path,
        config.checkpoint.keep,
        # Of several hosts the first decides when all save.
        config.checkpoint.interval_seconds if decides else math.inf,
        # A run that is killed early, as first runs are, shall have something to resume from.
        first_seconds=_FIRST_SAVE_SECONDS if resumed is None and decides else math.inf,
        best_return=-math.inf if best is None else best_return(best),
        listener=listener,
        peers=peers,
        # Not where what an update frees is kept for the next one, on purpose.
        after=(lambda: None) if config.learning.keep_freed_memory else return_freed_memory,
    )
