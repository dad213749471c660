"""Which of its environments an env server does without: those that fail too often."""

import logging
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from envs_server.errors import EnvironmentFailedError

_log = logging.getLogger("envs_server")

_MINUTE_SECONDS, _HOUR_SECONDS = 60.0, 3600.0
# Between tries to build an environment, from the second failure in a row on.
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.1, 1.0


class Budget(NamedTuple):
    """How often each environment may fail before it is left out."""

    per_minute: int = 3
    per_hour: int = 10


class Failures:
    """Counts the failures of each of an env server's environments, over all its leases.

    Environments go by their positions, 0 to `num_envs` - 1. The threads of all groups share it.

    Attributes:
      budget: how often each may fail.
      has_built: whether an environment was ever built: until then a failure is wrong usage.
      has_worked: whether one has ever taken a step.
      reason: why the newest of those that are left out is, in one line; "" if none is.
    """

    def __init__(
        self,
        num_envs: int,
        *,
        has_worked: bool = False,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self.budget = Budget()
        self.has_built = self.has_worked = has_worked
        self.reason = ""
        self._num_envs, self._clock, self._pause = num_envs, clock, pause
        self._out: set[int] = set()
        self._times: dict[int | None, list[float]] = {}
        self._lock = threading.Lock()  # a group's thread counts while the client's asks for `live`

    @property
    def live(self) -> list[int]:
        """Positions of the environments that are not left out, in order."""
        with self._lock:
            return [position for position in range(self._num_envs) if position not in self._out]

    def failed(self, position: int | None, text: str) -> None:
        """Counts and logs a failure.

        Of a vector implementation `position` may be None: it counts against all its environments.
        Raises EnvironmentFailedError if the budget is spent: the environment is left out.
        """
        with self._lock:
            now = self._clock()
            times = [each for each in self._times.get(position, ()) if now - each < _HOUR_SECONDS]
            self._times[position] = [*times, now]
            number = len(times) + 1
            last_minute = 1 + sum(now - each < _MINUTE_SECONDS for each in times)
            line = f"{text} (failure {number} within an hour)"
            if is_spent := last_minute > self.budget.per_minute or number > self.budget.per_hour:
                self._out |= set(range(self._num_envs)) if position is None else {position}
                left = self._num_envs - len(self._out)
                self.reason = f"left out after failure {number} within an hour: {text}"
                line = f"{self.reason}; {left} of {self._num_envs} environments go on"
        _log.error("%s", line)
        if is_spent:
            raise EnvironmentFailedError(line)

    def pause(self, number: int) -> None:
        """Waits before an environment is built after so many tries in a row that failed."""
        if number > 1:
            self._pause(min(_FIRST_PAUSE_SECONDS * 2 ** (number - 2), _LONGEST_PAUSE_SECONDS))
