"""Lock step: acting and learning in turn, so that a seed and an input stream decide everything.

Each round acts on one batch of all training slots and then learns what that has come to owe. The
number of a batch, counted from the run's start, decides its random numbers; nothing depends on
time, on threads, or on which env server has which slot. What is saved between two rounds is all
that there is, so a run that is killed and resumed goes on as if nothing had happened, provided that
its env servers do so too: those that play a recording do.
"""

from typing import Any

from learner.acting.loop import Acting
from learner.learning.loop import Learning
from learner.learning.snapshot import Snapshot
from learner.saving.recorder import Recorder
from learner.serving.hub import Hub
from learner.threads.rate_limiter import RateLimiter
from learner.threads.snapshot_requests import Snapshots


class LockStep:
    """One thread's work: `run_once` is a round, and the body of its loop.

    Attributes:
      snapshots: taken between two rounds.
    """

    def __init__(
        self,
        acting: Acting,
        learning: Learning,
        *,
        hub: Hub,
        limiter: RateLimiter,
        recorder: Recorder | None,
    ):
        self._acting = acting
        self._learning = learning
        self._hub = hub
        self._limiter = limiter
        self._recorder = recorder
        self.snapshots = Snapshots(self.snapshot)

    def run_once(self) -> None:
        """Acts on the next batch, if one is due soon, and learns what it owes."""
        acted = self._acting.run_once()
        if acted is not None and self._recorder is not None:
            self._recorder.append(acted.batch, acted.actions)
        while self._learning.run_once():
            # At once, so that what is acted on next knows whether the update was applied.
            self._learning.finish_update()
        self.snapshots.answer()

    def snapshot(self, with_replay: bool) -> Snapshot:
        """A copy of everything. For the owning thread, or after it has ended."""
        if self._recorder is not None:
            # A checkpoint must not be ahead of what was recorded.
            self._recorder.sync()
        meta: dict[str, Any] = {
            "env_steps": self._acting.training_steps,
            "limiter": dict(self._limiter.now.counts()),
            "streams": self._hub.streams_state(),
        }
        learned = self._learning.final_snapshot(with_replay)
        return learned._replace(acting=self._acting.snapshot(), meta=meta)
