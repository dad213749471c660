"""When a run is over, and why."""

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

from learner.checkpoints.restoring import is_other_task
from learner.checkpoints.run_records import rounds_since_best
from learner.multihost.agreement import Hosts
from learner.processes.stop import ENV_SERVERS_FAILED, StopRequest
from learner.report.events import EventSink
from learner.report.status import (
    ERROR,
    NO_IMPROVEMENT,
    NOT_FINITE,
    OUT_OF_TIME,
    STOPPED,
    THREAD_DIED,
    EvaluationStatus,
)
from learner.report.terminal import score
from learner.schedule import Session
from seedrl.checkpoints import Checkpoint
from seedrl.config import Config, learning_rate_decay_steps
from seedrl.config_io import changes, to_json
from seedrl.errors import UserError
from seedrl.exit_codes import ExitCode
from seedrl.timing import GRACE_SECONDS

# If several hold, the first counts.
Kind = Literal[
    "mistake",  # the user's agent or environment cannot be learned with; the error is one line
    "failed",  # a thread has raised an error
    "stopped",  # by a signal, or by the env servers' failure
    "not_finite",  # too many updates in a row
    "confirmed",  # a second evaluation has confirmed `evaluation.target_return`
    "all_steps",  # `learning.total_steps` environment steps were taken
    "out_of_time",  # `learning.max_seconds` are over
    "no_improvement",  # `evaluation.patience_rounds` without a new best
]
# Ends of a run that is over as its configuration asks, with or without its target.
OVER: tuple[Kind, ...] = ("all_steps", "out_of_time", "no_improvement")
# What ends one host alone: the others find that it is lost.
_OWN: tuple[Kind, ...] = ("mistake", "failed")


class EndOfRun(NamedTuple):
    """Why a run is over."""

    kind: Kind
    why: str  # in words for its user


def end_of_run(
    session: Session,
    stop: StopRequest,
    config: Config,
    *,
    skipped_in_a_row: int = 0,
    elapsed_seconds: float = 0.0,
    has_death: bool = False,
    is_scored: Callable[[], bool] = lambda: True,
    has_stalled: bool = False,
) -> EndOfRun | None:
    """Why the run is over; None as long as it is not.

    Args:
      elapsed_seconds: of the run, over all sessions.
      has_death: a thread outside the session has died.
      is_scored: called once all steps are taken; False while the last parameters are played.
      has_stalled: `evaluation.patience_rounds` have passed without a new best.
    """
    if session.failed.is_set() and isinstance(session.failure, UserError):
        return EndOfRun("mistake", ERROR)
    if session.failed.is_set() or has_death:
        return EndOfRun("failed", THREAD_DIED)
    if stop.is_set():
        return EndOfRun("stopped", stopped_by(stop))
    if skipped_in_a_row >= config.learning.max_skipped_updates:
        return EndOfRun("not_finite", NOT_FINITE)
    target, confirmed = config.evaluation.target_return, session.evaluator.confirmed
    if confirmed is not None:
        found = f"{score(confirmed.mean)} over {len(confirmed.returns)} episodes"
        return EndOfRun("confirmed", f"target {target:g} confirmed: {found}")
    learning, over = config.learning, None
    if session.acting.training_steps >= learning.total_steps and is_scored():
        over = EndOfRun("all_steps", f"all {learning.total_steps:,} steps taken")
    elif learning.max_seconds is not None and elapsed_seconds >= learning.max_seconds:
        over = EndOfRun("out_of_time", OUT_OF_TIME)
    elif has_stalled:
        rounds = f"{config.evaluation.patience_rounds} rounds (evaluation.patience_rounds)"
        over = EndOfRun("no_improvement", f"{NO_IMPROVEMENT} in {rounds}")
    return None if over is None else over._replace(why=f"{over.why}{_miss(session, target)}")


def _miss(session: Session, target: float | None) -> str:
    # A confirmation may have been under way.
    missed = "confirmed" if session.evaluator.is_confirming else "reached"
    return "" if target is None else f", target {target:g} not {missed}"


def stopped_by(stop: StopRequest) -> str:
    """Who stopped the run, in words."""
    is_failure = stop.by.startswith(ENV_SERVERS_FAILED)
    return stop.by if is_failure else f"{STOPPED} {stop.by}"


class LastRound:
    """The evaluation of the last parameters, once all steps are taken. Used by the main thread.

    Training rests meanwhile: acting answers evaluation slots alone, and learning has settled. A
    round that is under way is finished first; one that reaches the target is confirmed.
    """

    def __init__(
        self,
        session: Session,
        seconds: float,
        listener: EventSink,
        newest: EvaluationStatus | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        """`seconds`: it may take; `newest`: the last round of earlier sessions."""
        self._session, self._listener, self._clock = session, listener, clock
        self._seconds, self._newest = seconds, newest
        self._is_over: bool | None = None  # None until it begins
        # When it is given up: for taking too long, and for want of environments that evaluate.
        self._deadline = self._vacant = 0.0

    def is_over(self) -> bool:
        """True once it has a score, is given up, or there is nothing to play."""
        now, channel = self._clock(), self._session.system.channel
        if self._is_over is None:
            self._is_over = not self._is_wanted()
            self._deadline, self._vacant = now + self._seconds, now + 2 * GRACE_SECONDS
            if not self._is_over:
                # No update follows, so that what is played stays the last.
                channel.is_complete = True
                text = "all steps are taken: evaluating the last parameters"
                self._listener.report("evaluation", text)
        if self._is_over:
            return True
        if self._session.has_live_evaluation:
            self._vacant = now + 2 * GRACE_SECONDS
        evaluator = self._session.evaluator
        if channel.last and evaluator.played_version == channel.last[0].version:
            # Only now: acting sets `played_version` after `is_running`.
            self._is_over = not evaluator.is_running
        if not self._is_over and now >= min(self._deadline, self._vacant):
            reason = "no env server has evaluation slots"
            if now >= self._deadline:
                reason = f"not over after {self._seconds:g} s (evaluation.final_seconds)"
            text = f"the last parameters are not evaluated: {reason}"
            self._listener.report("evaluation", text, is_problem=True)
            self._is_over = True
        return self._is_over

    def _is_wanted(self) -> bool:
        system = self._session.system
        # Several hosts would have to agree on this.
        has_slots = system.hosts.is_alone and system.geometry.evaluation_slots > 0
        is_new = _is_new(self._session.learning.updates, self._newest)
        return is_new and has_slots and self._seconds > 0


def _is_new(updates: int, newest: EvaluationStatus | None) -> bool:
    # Parameters that were played already, or never learned, are not played.
    return updates > 0 and (newest is None or updates != newest.updates)


def ended_earlier(
    checkpoint: Checkpoint, config: Config, rounds: Sequence[EvaluationStatus], *, is_alone: bool
) -> ExitCode | None:
    """The exit code of a run that is over since an earlier session, and prints why; else None.

    `rounds`: of evaluation, in all sessions; none if the run has several hosts.
    """
    learning, evaluation, meta = config.learning, config.evaluation, checkpoint.meta
    steps, target, seconds = meta["env_steps"], evaluation.target_return, learning.max_seconds
    # A session that was killed may have played later parameters, which it had not saved.
    rounds = [each for each in rounds if each.env_steps <= steps]
    is_scored = not (
        is_alone
        and config.serving.evaluation_slots > 0
        and evaluation.final_seconds > 0
        and _is_new(checkpoint.step, rounds[-1] if rounds else None)
    )
    # A run that was trained with another target, or none, or in another environment is not over.
    is_confirmed = (
        target is not None
        and "params_updates" in meta  # its parameters have confirmed the target
        and "evaluation.target_return" not in changes(meta["config"], to_json(config))
        and not is_other_task(checkpoint, config)
    )
    if is_confirmed:
        why = f"target {target:g} was confirmed"
        hint = "--evaluation.target-return None, or a higher one,"
    elif steps >= learning.total_steps and is_scored:
        why = f"all {learning.total_steps:,} steps were taken"
        hint = "a larger --learning.total-steps"
        if learning_rate_decay_steps(config):  # the learning rate would stay 0
            hint += ", and --agent.learning-rate-decay-steps,"
    elif seconds is not None and meta["totals"].get("elapsed_seconds", 0.0) >= seconds:
        why, hint = OUT_OF_TIME, "a larger --learning.max-seconds"
    elif 0 < evaluation.patience_rounds <= rounds_since_best(rounds):
        why, hint = NO_IMPROVEMENT, "a larger --evaluation.patience-rounds"
    else:
        return None
    print(
        f"an earlier session ended this run at {steps:,} environment steps: {why}; nothing is left "
        f"to do. hint: {hint} continues training",
        file=sys.stderr,
        flush=True,
    )
    has_missed = target is not None and not is_confirmed
    return ExitCode.TARGET_MISSED if has_missed else ExitCode.OK


def is_over(ended: EndOfRun | None, hosts: Hosts) -> bool:
    """True if this host stops now; `ended`, what it has come to by itself, goes to the others.

    A host that is alone stops at once.
    """
    # A failure is not put to the vote: the learning thread, which votes, may be dead.
    if hosts.is_alone or (ended is not None and ended.kind in _OWN):
        return ended is not None
    if ended is not None and not hosts.wants_end:
        hosts.wants_end = ended
    return bool(hosts.end)


def common_end(hosts: Hosts) -> EndOfRun | None:
    """What all hosts have come to; None if this one ends alone."""
    kind_and_why: Any = hosts.end
    return EndOfRun(*kind_and_why) if kind_and_why else None
