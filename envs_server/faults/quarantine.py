"""Which of its environments an env server does without: those that fail too often."""

import json
import time
from collections.abc import Callable
from typing import NamedTuple

_MINUTE_SECONDS, _HOUR_SECONDS = 60.0, 3600.0
# A hang or a death costs its neighbours a new process, and time: the second one is too many.
_ENDS_PER_HOUR = 1
# Failures of nobody knows which environment.
_SOMEBODY = -1


class Budget(NamedTuple):
    """How often each environment may fail before it is quarantined."""

    per_minute: int = 3
    per_hour: int = 10


class _Failure(NamedTuple):
    seconds: float  # when, by the clock
    ends_process: bool


class Quarantine:
    """Counts the failures of each of an env server's environments. Used by one thread at a time.

    Environments go by their positions, 0 to `num_envs` - 1. What fails without being known, as in a
    vector implementation of its own, counts against all of them together.

    Attributes:
      budget: what is allowed.
      has_worked: whether an environment has ever taken a step.
      reason: of the newest quarantine, in one line; empty if there is none.
    """

    def __init__(
        self,
        num_envs: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        remembered: str = "",
        keep: Callable[[str], None] = lambda remembered: None,
    ) -> None:
        """Knows nothing yet, or what a process before knew.

        Args:
          num_envs: how many environments there are.
          clock: gives monotonic seconds.
          remembered: what `remember` gave in that process, by the same clock.
          keep: takes what `remember` gives: now, after each failure and after the first step.
        """
        self._num_envs, self._clock = num_envs, clock
        memory = json.loads(remembered or "{}")
        self._out: set[int] = set(memory.get("out", ()))
        self.reason: str = memory.get("reason", "")
        self.has_worked: bool = memory.get("has_worked", False)
        self._failures: dict[int, list[_Failure]] = {
            int(position): [_Failure(*failure) for failure in failures]
            for position, failures in memory.get("failures", {}).items()
        }
        self.budget = Budget()
        self._keep = keep
        keep(self.remember())

    @property
    def live(self) -> list[int]:
        """Positions of the environments that are not quarantined, in order."""
        return [position for position in range(self._num_envs) if position not in self._out]

    @property
    def num_out(self) -> int:
        """How many are quarantined."""
        return len(self._out)

    def is_defect(self, position: int | None) -> bool:
        """Whether a failure at `position` is that of all environments, none of which ever worked.

        One that fails alone is not: before anything has worked, another has to fail too.
        """
        if self.has_worked:
            return False
        others = {*self._failures} - {position}
        return position is None or bool(others) or len(self.live) == 1

    def worked(self) -> None:
        """An environment has taken a step."""
        if not self.has_worked:
            self.has_worked = True
            self._keep(self.remember())

    def failed(self, position: int | None, text: str, *, ends_process: bool = False) -> str:
        """Counts a failure, in time; returns the line that says so, and what follows from it.

        `ends_process` says whether another process had to be started for it.
        """
        line = self._counted(position, text, ends_process)
        self._keep(self.remember())
        return line

    def _counted(self, position: int | None, text: str, ends_process: bool) -> str:
        now, who = self._clock(), _SOMEBODY if position is None else position
        failures = self._failures.setdefault(who, [])
        failures.append(_Failure(now, ends_process))
        failures[:] = [each for each in failures if now - each.seconds < _HOUR_SECONDS]
        number = len(failures)
        if not self._is_too_often(who):
            return f"{text} (failure {number} within an hour)"
        if position is None:
            self._out.update(self.live)
            self.reason = f"{text} (failure {number} within an hour, of nobody knows which)"
            return self.reason
        self._out.add(position)
        hour = f"failure {number} within an hour"
        self.reason = f"environment {position} is quarantined after {hour}: {text}"
        return f"{self.reason}; {len(self.live)} of {self._num_envs} environments go on"

    def remember(self) -> str:
        """All that is known, for the process that takes the place of this one."""
        return json.dumps(
            {
                "out": sorted(self._out),
                "reason": self.reason,
                "has_worked": self.has_worked,
                "failures": self._failures,
            }
        )

    def _is_too_often(self, who: int) -> bool:
        failures, now = self._failures[who], self._clock()
        last_minute = sum(now - each.seconds < _MINUTE_SECONDS for each in failures)
        return (
            last_minute > self.budget.per_minute
            or len(failures) > self.budget.per_hour
            or sum(each.ends_process for each in failures) > _ENDS_PER_HOUR
            # What has never worked gets a second chance, and no third.
            or (not self.has_worked and len(failures) > 1)
        )
