"""How often a learner that ends unasked is started again, and after how long."""

from collections.abc import Callable
from typing import NamedTuple

from seedrl.exit_codes import ExitCode

# Another start of the learner would not change these.
FINAL: tuple[int, ...] = (
    *(ExitCode.OK, ExitCode.TARGET_MISSED, ExitCode.USAGE, ExitCode.NOT_FINITE),
    ExitCode.UNREADABLE_CHECKPOINT,
)
# What dies for a reason of its own dies again.
_RESTARTS, _HOUR_SECONDS = 6, 3600.0
# A learner whose actor is lost may still be saving: until then the folder is its own. A large
# replay takes it minutes; what holds the folder for longer does not save.
_TAKEN_SECONDS, _MOST_TAKEN_SECONDS = 10.0, 900.0


class Verdict(NamedTuple):
    """What becomes of a learner that has ended.

    Attributes:
      pause_seconds: until it is started again.
      refusal: why it is not; "" if it is.
    """

    pause_seconds: float
    refusal: str = ""


class LearnerRestarts:
    """The budget of a run's learner. Used by one thread."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` gives monotonic seconds."""
        self._clock = clock
        self._deaths: list[float] = []
        self._taken_since: float | None = None  # since when no start has found the folder free

    def ended(self, code: int) -> Verdict:
        """What becomes of one that has ended unasked with that exit code."""
        now = self._clock()
        if code == ExitCode.ADDRESS_IN_USE:
            # It had not begun: nothing has died, and the folder is waited for.
            self._taken_since = now if self._taken_since is None else self._taken_since
            if now - self._taken_since < _MOST_TAKEN_SECONDS:
                return Verdict(_TAKEN_SECONDS)
            minutes = _MOST_TAKEN_SECONDS / 60
            return Verdict(0.0, f"for {minutes:.0f} minutes: another one holds the run's folder")
        self._taken_since = None
        self._deaths = [*[at for at in self._deaths if now - at < _HOUR_SECONDS], now]
        too_often = len(self._deaths) > _RESTARTS
        return Verdict(0.0, f"after {_RESTARTS} restarts within an hour" if too_often else "")
