"""When a run is over, and why."""

import enum
import threading

from learner.acting.evaluator import Score
from learner.launch.supervisor import ENV_SERVERS_FAILED
from learner.reporting.status import ERROR, STOPPED, THREAD_DIED
from learner.reporting.wording import score, untrained
from learner.serving.server import Service
from learner.session.session import Session
from seedrl.errors import UserError


class EndOfRun(enum.Enum):
    """Why a run is over; where several hold, the first counts.

    Attributes:
      MISTAKE: what the user has brought cannot be learned with; it is said in one line.
      FAILED: a thread of the session or of the service has raised an error.
      STOPPED: SIGTERM or SIGINT asked for it.
      CONFIRMED: a second evaluation has confirmed `evaluation.target_return`.
      ALL_STEPS: `learning.total_steps` environment steps were taken.
    """

    MISTAKE = enum.auto()
    FAILED = enum.auto()
    STOPPED = enum.auto()
    CONFIRMED = enum.auto()
    ALL_STEPS = enum.auto()


def end_of_run(
    session: Session, service: Service, stop: threading.Event, total_steps: int
) -> EndOfRun | None:
    """Why the run is over; None as long as it is not.

    Args:
      stop: what SIGTERM and SIGINT set.
      total_steps: environment steps for training.
    """
    if session.failed.is_set() and isinstance(session.failure, UserError):
        return EndOfRun.MISTAKE
    if session.failed.is_set() or service.failure is not None:
        return EndOfRun.FAILED
    if stop.is_set():
        return EndOfRun.STOPPED
    if session.evaluator.confirmed is not None:
        return EndOfRun.CONFIRMED
    if session.acting.training_steps >= total_steps:
        return EndOfRun.ALL_STEPS
    return None


def why(
    end: EndOfRun | None,
    target: float | None = None,
    confirmed: Score | None = None,
    total_steps: int = 0,
    *,
    stopped_by: str = "",
) -> str:
    """Why the run is over, in words for its user; `end` is None where an exception ended it."""
    if end is EndOfRun.STOPPED:
        is_failure = stopped_by.startswith(ENV_SERVERS_FAILED)
        return stopped_by if is_failure else f"{STOPPED}: {stopped_by}"
    if end is EndOfRun.CONFIRMED and confirmed is not None:
        num_episodes = len(confirmed.returns)
        text = f"{score(confirmed.mean)} over {num_episodes} episodes"
        return f"target {target:g} confirmed: {text}{untrained(confirmed.frozen.version)}"
    if end is EndOfRun.ALL_STEPS:
        missed = "" if target is None else f", target {target:g} not reached"
        return f"all {total_steps:,} steps taken{missed}"
    return THREAD_DIED if end is EndOfRun.FAILED else ERROR
