"""Progress of a session: compiled, first update, evaluations, and what goes wrong in learning."""

import math
import time
from collections.abc import Callable, Iterable

from learner.report.events import EventSink
from learner.report.status import EvaluationStatus
from learner.report.terminal import score
from learner.schedule import Session
from seedrl.config import Config
from seedrl.timing import WARNING_SECONDS

# A metric that none of the first episodes has is taken for a typing error.
_EPISODES_WITHOUT = 20


class ProgressReporter:
    """Turns what a session's counters show into events. Used by the main thread.

    The acting and the learning thread only raise the counters; nothing here is called by them.
    """

    def __init__(
        self,
        config: Config,
        session: Session,
        listener: EventSink,
        clock: Callable[[], float] = time.monotonic,
        earlier: Iterable[EvaluationStatus] = (),
        *,
        compiling_since: float | None = None,
    ):
        """Starts with a session that is compiling, since now if `compiling_since` is None.

        `earlier`: rounds of all sessions before this one, see `run_records.played_rounds`.
        """
        self._target = config.evaluation.target_return
        self._max_skipped = config.learning.max_skipped_updates
        self._session = session
        self._listener = listener
        self._clock = clock
        self._compiling_since = clock() if compiling_since is None else compiling_since
        self.is_compiling = True
        self._has_updated = self._has_checked_metrics = False
        # Of each loss, its count in the last event, and when the next event may be.
        self._warned: dict[str, tuple[int, float]] = {}
        # Counts of updates as they were when the last finite one was seen.
        self._applied = self._skipped = 0
        self.skipped_in_a_row = 0  # since the last finite one; stays once it ends the run
        # Rounds below the target are reported no more often than metrics; `metrics.jsonl` has all.
        self._round_seconds, self._next_round = config.logging.interval_seconds, -math.inf
        # Rounds of evaluation of the run.
        self.last: EvaluationStatus | None = None
        self.best: EvaluationStatus | None = None
        for played in earlier:
            self._keep(played)

    def update(self) -> None:
        """Reports what has changed since the last call."""
        session, learning = self._session, self._session.learning
        # A compilation that has failed ends too; the session fails with its error.
        if self.is_compiling and not session.is_compiling and not session.failed.is_set():
            self.is_compiling = False
            seconds = self._clock() - self._compiling_since
            self._listener.report("learning", f"compiled in {seconds:.1f} s", seconds=seconds)
        if not self._has_updated and learning.num_applied:
            self._has_updated = True
            steps = session.acting.training_steps
            text = f"first update, at {steps:,} environment steps"
            self._listener.report("learning", text)
        self._look_at_metrics()
        self._look_at_losses()
        while session.acting.rounds:
            self._take(session.acting.rounds.popleft())

    def _look_at_losses(self) -> None:
        learning = self._session.learning
        if self.skipped_in_a_row < self._max_skipped:  # beyond it the run ends, whatever follows
            # Applied first: a finite update may come between the two.
            applied, skipped = learning.num_applied, learning.num_skipped
            if applied != self._applied:
                self._applied, self._skipped = applied, skipped
            self.skipped_in_a_row = skipped - self._skipped
        self._warn(
            learning.num_skipped,
            "skipped {number:,} updates with a non-finite loss, gradient, optimizer step or "
            f"running moment ({self.skipped_in_a_row:,} in a row; the run ends with "
            f"{self._max_skipped:,}, learning.max_skipped_updates). Their sequences now have the "
            "lowest priority. hint: check for very large rewards or observations",
            "skipped",
        )
        self._warn(
            learning.num_stale,
            "dropped {number:,} sequences that were acted more updates ago than "
            "replay.max_lag_updates allows. hint: check whether an env server hangs, or is much "
            "slower than the others",
            "stale",
        )

    def _warn(self, count: int, text: str, name: str) -> None:
        before, next_warning = self._warned.get(name, (0, -math.inf))
        now = self._clock()
        if count == before or now < next_warning:
            return
        self._warned[name] = (count, now + WARNING_SECONDS)
        number = count - before
        text = text.format(number=number)
        self._listener.report("learning", text, is_problem=True, number=number)

    def _look_at_metrics(self) -> None:
        totals = self._session.acting.totals
        if self._has_checked_metrics or totals.measured_episodes < _EPISODES_WITHOUT:
            return
        self._has_checked_metrics = True
        if absent := totals.absent_metrics:
            names = " or ".join(map(repr, absent))
            self._listener.report(
                "learning",
                f"environment.metrics: none of {totals.measured_episodes} episodes had {names} in "
                "its last info. hint: `seedrl check-env` lists the numbers that are there",
                is_problem=True,
                names=list(absent),
            )

    def _take(self, played: EvaluationStatus) -> None:
        self._keep(played)
        score_text = f"{score(played.mean_return)} over {played.episodes} episodes"
        text = f"evaluation: {score_text}, by the parameters of update {played.updates:,}"
        outcome = "below"
        if self._target is not None and played.mean_return >= self._target:
            if played.is_confirmation:
                outcome = "confirmed"
                text = f"target {self._target:g} confirmed: {score_text}"
            else:
                outcome = "nominated"
                text += f"; target {self._target:g} reached: fresh episodes must confirm it"
        elif played.is_confirmation:
            text = f"confirmation failed: {text.removeprefix('evaluation: ')}"
        elif self._clock() < self._next_round:
            return
        else:
            self._next_round = self._clock() + self._round_seconds
        self._listener.report(
            "evaluation",
            text,
            mean_return=played.mean_return,
            episodes=played.episodes,
            updates=played.updates,
            is_confirmation=played.is_confirmation,
            outcome=outcome,
        )

    def _keep(self, played: EvaluationStatus) -> None:
        self.last = played
        if self.best is None or played.mean_return > self.best.mean_return:
            self.best = played
