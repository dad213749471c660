"""Lock step: acting and learning interleaved, so that a seed and an input stream decide everything.

Each round acts on one batch of all training slots and then learns what is owed then. The number of
a batch, counted from the run's start, decides its random numbers; nothing depends on time, on
threads, or on which env server has which slot. What is saved between two rounds is all that there
is, so a run that is killed and resumed continues as if nothing had happened, provided that its env
servers do so too: those that play a recording do.
"""

from collections.abc import Callable, Mapping
from typing import Any

from learner.learning.loop import Snapshot
from learner.saving.recorder import Recorder
from learner.serving.hub import Hub
from learner.session.components import Parts, compile_all
from learner.threads.exchange import Requests


class LockStep:
    """One thread's work, a round at a time; see `learner.session.session.Regime`.

    Attributes:
      is_compiling: until `warm_up` is over: everything is compiled before the thread starts.
      can_insert: True then.
    """

    can_insert = True

    def __init__(self, parts: Parts, hub: Hub, recorder: Recorder | None):
        """`recorder`: takes each batch with its actions."""
        self._parts = parts
        self.is_compiling = True
        (self._acting,) = parts.acting
        self._learning = parts.learning
        self._hub = hub
        self._recorder = recorder
        self.bodies: Mapping[str, Callable[[], object]] = {"lock step": self.run_once}
        self.snapshots = Requests(self.snapshot)  # taken between two rounds

    def warm_up(self) -> None:
        """Compiles everything."""
        compile_all(self._parts)
        self.is_compiling = False

    def end_waits(self) -> None:
        """Limiter and exchange stay open: a round that has begun is finished, and then saved."""
        self._parts.exchange.wake_acting()

    def run_once(self) -> None:
        """Acts on the next batch, if one is due soon, and learns what it owes."""
        acted = self._acting.run_once()
        if acted is not None and self._recorder is not None:
            self._recorder.append(*acted)
        while self._learning.run_once():
            # At once, so that what is acted on next knows whether the update was applied.
            self._learning.finish_update()
        if self.snapshots.request_made is not None:
            self.snapshots.answer()

    def snapshot(self, with_replay: bool) -> Snapshot:
        """A copy of everything. For the owning thread, or after it has ended."""
        if self._recorder is not None:
            # A checkpoint must not be ahead of what was recorded.
            self._recorder.sync()
        meta: dict[str, Any] = {
            "env_steps": self._acting.training_steps,
            "limiter": dict(self._parts.exchange.limiter.now.counts()),
            "streams": self._hub.streams_state(),
        }
        learned = self._learning.final_snapshot(with_replay)
        return learned._replace(acting=self._acting.snapshot(), meta=meta)
