"""What a session reaches, and what holds it up, said when it is noticed."""

import math
import time
from collections.abc import Callable, Iterable

import numpy as np

from learner.acting.evaluator import Confirmation
from learner.learning.loop import Learning
from learner.reporting.events import Listener
from learner.reporting.status import EvaluationStatus
from learner.reporting.wording import score, untrained
from learner.session.session import Session
from seedrl.config import Config

_WARNING_SECONDS = 60.0
_FIRST_WAIT_SECONDS = 10.0
_CONFIRMING_SECONDS = 10.0
_MANY_EPISODES = 10  # for each slot: a confirmation takes long enough to say what would help
_SKIPPED_AT_FIRST = 10  # with not one that was applied
_EPISODES_WITHOUT = 20  # a metric that none of the first ones has is taken for a slip


class Announcements:
    """Looks at a session that has started, and says what is new. Used by the main thread.

    Attributes:
      last, best: rounds of evaluation of the run.
      skipped_in_a_row: updates since the last one that was finite; stays once it ends the run.
    """

    def __init__(
        self,
        config: Config,
        session: Session,
        listener: Listener,
        clock: Callable[[], float] = time.monotonic,
        earlier: Iterable[EvaluationStatus] = (),
    ):
        """`earlier` are rounds of all sessions before this one, see `run_records.played_rounds`."""
        self._target = config.evaluation.target_return
        self._session = session
        self._listener = listener
        self._clock = clock
        self._began = clock()
        self.is_compiling = True
        self._has_updated = self._has_warned_of_first = False
        self._num_skipped, self._next_warning = 0, -math.inf
        self._num_stale, self._next_stale = 0, -math.inf
        self._max_skipped = config.learning.max_skipped_updates
        # Counts of updates as they were when the last finite one was seen.
        self._finite = (0, 0)
        self.skipped_in_a_row, self._has_warned_of_row = 0, False
        self._looks_for_metrics = True
        self._progress = ConfirmationProgress(listener)
        self.last: EvaluationStatus | None = None
        self.best: EvaluationStatus | None = None
        for played in earlier:
            self._keep(played)

    def look(self) -> None:
        """Says what has happened since the last look."""
        self._look_at_programs()
        self._look_at_metrics()
        self._look_at_row()
        while self._session.acting.rounds:
            self._take(self._session.acting.rounds.popleft())
        self._progress.look(self._session.evaluator.confirmation, self._clock())

    def _look_at_row(self) -> None:
        if self.skipped_in_a_row >= self._max_skipped:
            return  # the run ends of it, whatever is learned until it has
        # Applied first: one that is finite may come between the two.
        applied, skipped = self._session.learning.num_applied, self._session.learning.num_skipped
        if applied != self._finite[0]:
            self._finite, self._has_warned_of_row = (applied, skipped), False
        self.skipped_in_a_row = number = skipped - self._finite[1]
        if number * 10 < self._max_skipped or not number or self._has_warned_of_row:
            return
        self._has_warned_of_row = True
        self._listener.say(
            "updates_skipped",
            f"{number:,} updates in a row were skipped, for a loss, gradient, step or running "
            f"moment was not finite; the run ends with {self._max_skipped:,} "
            "(learning.max_skipped_updates)",
            updates=number,
        )

    def reported(self) -> None:
        """An interval of metrics has ended."""
        self._look_at_skipped()
        self._look_at_stale()

    def _look_at_skipped(self) -> None:
        num_skipped = self._session.learning.num_skipped
        number = num_skipped - self._num_skipped
        if not number or self._clock() < self._next_warning:
            return
        self._listener.say(
            "updates_skipped",
            f"{number:,} updates were skipped, for a loss, gradient, step or running moment "
            "was not finite; their sequences are drawn last from now on (is a reward or an "
            "observation very large?)",
            updates=number,
        )
        self._num_skipped, self._next_warning = num_skipped, self._clock() + _WARNING_SECONDS

    def _look_at_stale(self) -> None:
        num_stale = self._session.learning.num_stale
        number = num_stale - self._num_stale
        if not number or self._clock() < self._next_stale:
            return
        self._listener.say(
            "sequences_stale",
            f"{number:,} sequences were dropped, for their first rows were acted more updates ago "
            "than replay.max_lag_updates allows (has an env server hung, or is it far slower than "
            "the others?)",
            sequences=number,
        )
        self._num_stale, self._next_stale = num_stale, self._clock() + _WARNING_SECONDS

    def _look_at_programs(self) -> None:
        if self.is_compiling and not self._session.is_compiling:
            self.is_compiling = False
            seconds = self._clock() - self._began
            self._listener.say("compiled", f"compiled in {seconds:.1f} s", seconds=seconds)
        if not self._has_updated:
            self._look_at_first_updates(self._session.learning)

    def _look_at_first_updates(self, learning: Learning) -> None:
        if learning.num_applied:
            self._has_updated = True
            steps = self._session.acting.training_steps
            self._listener.say(
                "first_update",
                f"first update, at {steps:,} environment steps",
                updates=learning.updates,
            )
            self._look_at_empty_shards(learning)
        elif learning.num_skipped >= _SKIPPED_AT_FIRST and not self._has_warned_of_first:
            self._has_warned_of_first, number = True, learning.num_skipped
            self._num_skipped, self._next_warning = number, self._clock() + _WARNING_SECONDS
            self._listener.say(
                "updates_skipped",
                f"nothing is learned: all of the first {number} updates were skipped, for a loss, "
                "gradient, step or running moment was not finite (is it the loss itself, or are "
                "rewards or observations very large?)",
                updates=number,
            )

    def _look_at_empty_shards(self, learning: Learning) -> None:
        number, of = learning.num_empty_shards, len(learning.sequences_of_shards())
        if number:
            self._listener.say(
                "shards_empty",
                f"learning without {number} of {of} devices: no experience has arrived for them "
                "(are there too few env servers for serving.training_slots?)",
                shards=number,
            )

    def _look_at_metrics(self) -> None:
        acting = self._session.acting.totals
        if not self._looks_for_metrics or acting.measured_episodes < _EPISODES_WITHOUT:
            return
        self._looks_for_metrics = False
        if absent := acting.absent_metrics:
            number = acting.measured_episodes
            names = " or ".join(map(repr, absent))
            self._listener.say(
                "metrics_absent",
                f"environment.metrics: none of {number} episodes had {names} in its last info; "
                "`seedrl check-env` names the numbers that are there",
                names=list(absent),
                episodes=number,
            )

    def _take(self, played: EvaluationStatus) -> None:
        self._keep(played)
        text = f"{score(played.mean_return)} over {played.episodes} episodes"
        reaches = self._target is not None and played.mean_return >= self._target
        if reaches and played.is_confirmation:
            remark = untrained(played.updates, begins_untrained=self._session.begins_untrained)
            self._listener.say(
                "confirmed",
                f"target {self._target:g} confirmed: {text}{remark}",
                mean_return=played.mean_return,
                episodes=played.episodes,
                updates=played.updates,
            )
            return
        what = "confirmation failed" if played.is_confirmation else "evaluation"
        self._listener.say(
            "evaluation",
            f"{what}: {text}, by the parameters of update {played.updates:,}",
            mean_return=played.mean_return,
            episodes=played.episodes,
            updates=played.updates,
            is_confirmation=played.is_confirmation,
        )
        if reaches:
            self._listener.say(
                "nominated",
                f"target {self._target:g} reached: fresh episodes of the same parameters must "
                "confirm it",
                mean_return=played.mean_return,
                updates=played.updates,
            )

    def _keep(self, played: EvaluationStatus) -> None:
        self.last = played
        if self.best is None or played.mean_return > self.best.mean_return:
            self.best = played


class ConfirmationProgress:
    """Says how far a confirmation is that takes long. Used by one thread."""

    def __init__(self, listener: Listener):
        self._listener = listener
        self._next: float | None = None
        self._has_advised = False
        self._num_dropped = 0

    def look(self, played: Confirmation | None, now: float) -> None:
        """Takes how far it is by now; None if none is being played."""
        if played is None:
            self._next, self._has_advised, self._num_dropped = None, False, 0
        elif self._next is None:
            self._next = now + _CONFIRMING_SECONDS
        elif now >= self._next:
            self._next = now + _CONFIRMING_SECONDS
            self._say(played)

    def _say(self, played: Confirmation) -> None:
        episodes = len(played.returns)
        mean = math.nan
        text = f"confirming: {episodes} of {played.episodes} episodes"
        if episodes:
            mean = float(np.mean(played.returns))
            text += f", mean {score(mean)}"
        if played.num_dropped > self._num_dropped:
            number, self._num_dropped = played.num_dropped - self._num_dropped, played.num_dropped
            text += f"; {number} are played again, for the env servers that played them left"
        if (
            not self._has_advised
            and played.num_slots
            and played.episodes >= _MANY_EPISODES * played.num_slots
        ):
            self._has_advised = True
            slots = f"{played.num_slots} evaluation slot{'s' * (played.num_slots != 1)}"
            text += f", on {slots}: more are faster (serving.evaluation_slots, and env servers that"
            text += " offer as many environments)"
        self._listener.say(
            "confirming",
            text,
            episodes=episodes,
            confirm_episodes=played.episodes,
            mean_return=mean,
        )


class StandStill:
    """Notices that environments take no steps, and says so ever more rarely. Used by one thread."""

    def __init__(self, listener: Listener, steps: int, now: float):
        """`steps`: that there are at the time `now`; those of earlier sessions, say."""
        self._listener = listener
        self._steps, self._moved = steps, now
        self._next = _FIRST_WAIT_SECONDS

    def look(self, steps: int, now: float, holdup: Callable[[], str]) -> None:
        """Takes how many steps there were by now.

        `holdup`: gives who keeps environments from stepping, in words.
        """
        seconds = now - self._moved
        if steps != self._steps:
            if self._next > _FIRST_WAIT_SECONDS:
                self._listener.say(
                    "steps_again", f"environments step again after {seconds:.0f} s", seconds=seconds
                )
            self._steps, self._moved, self._next = steps, now, _FIRST_WAIT_SECONDS
        elif seconds >= self._next:
            self._next = 2 * seconds  # in a week that is some fifteen times
            who = holdup()
            self._listener.say(
                "waiting",
                f"0 steps/s for {seconds:.0f} s: {who}",
                seconds=seconds,
                waiting_for=who,
            )
