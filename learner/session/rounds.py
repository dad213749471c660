"""Rounds: act until every training slot has filled a page, learn from all of them, and again.

Both in one thread: acting waits while a round is learned from, and then acts with what was learned.
Serving begins the pages of all slots together, and again when an env server was lost, so nothing is
open between two rounds: every row was acted by the parameters that its round began with.
"""

from collections.abc import Callable, Mapping

from learner.session.components import Parts, compile_all


class Rounds:
    """One thread's work, a batch at a time; see `learner.session.session.Regime`.

    Attributes:
      is_compiling: until `warm_up` is over: everything is compiled before the thread starts.
      can_insert: True then.
    """

    can_insert = True

    def __init__(self, parts: Parts):
        self._parts = parts
        self.is_compiling = True
        (self._acting,) = parts.acting
        self._learning = parts.learning
        self.bodies: Mapping[str, Callable[[], object]] = {"rounds": self.run_once}
        self.snapshots = parts.learning.snapshots

    def warm_up(self) -> None:
        """Compiles everything."""
        compile_all(self._parts)
        self.is_compiling = False

    def end_waits(self) -> None:
        """Limiter and exchange stay open: a round that is complete is learned from."""
        self._parts.exchange.wake_acting()

    def run_once(self) -> None:
        """Acts on the next batch, if one is due soon, and learns from a round that it completes."""
        self._acting.run_once()
        while self._learning.run_once():
            # At once, so that the next round is acted with what was learned.
            self._learning.finish_update()
