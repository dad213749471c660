"""What can go wrong with an environment, and which of them an env server does without."""

import enum
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from seedrl.errors import UserError
from seedrl.types import StepType
from seedrl.wire.payload import ValueFaultError


class BuildError(UserError, ValueError):
    """The environment cannot be built here: one line for the learner's operator."""


class EnvironmentFailedError(RuntimeError):
    """An environment failed, and the stream of its group cannot continue."""


def one_line(error: BaseException) -> str:
    """The type and text of an exception on one line, and the line of the user's code it came from.

    Of type and text at most 300 characters.
    """
    from seedrl.hints import own_place  # only once something fails

    try:
        # Protobuf refuses the surrogates that Python has in place of bytes that are no UTF-8.
        text = " ".join(str(error).encode(errors="replace").decode().split())
    except Exception:  # an exception of the environment's own, whose __str__ raises
        text = ""
    place = own_place(error)
    line = f"{type(error).__name__}: {text}"[:300] if text else type(error).__name__
    return f"{line} ({place})" if place else line


_RETURNED = {
    "reset": ("observation", "info"),
    "step": ("observation", "reward", "terminated", "truncated", "info"),
}


def returned(call: str, result: Any) -> Any:
    """What `reset` or `step` of an environment returned. Raises TypeError if gymnasium's does not.

    An environment for gym before 0.26 returns fewer values.
    """
    names = _RETURNED[call]
    if not isinstance(result, tuple) or len(result) != len(names):
        got = f"{len(result)} values" if isinstance(result, tuple) else type(result).__name__
        raise TypeError(f"expected {call} to return ({', '.join(names)}), got {got}")
    return result


class Progress(enum.IntEnum):
    """The furthest that any environment of an env server has come, over all its leases."""

    NONE, BUILT, RESET, STEPPED, ENDED = range(5)  # ENDED: has ended an episode


# As plain names: each step of each group is noted, and a member of an enum takes as long as that.
_STEPPED, _ENDED, _LAST = Progress.STEPPED, Progress.ENDED, StepType.LAST.value


class Failures:
    """Counts the failures of each of an env server's environments, over all its leases.

    Environments go by their positions, 0 to `num_envs` - 1. Used by the thread that steps them.

    Attributes:
      most_per_hour: failures of each within an hour, before it is left out; 0: the first one ends
        the play, as of a check.
      live: positions of the environments that are not left out, in order.
      slots: the learner's numbers of them, by their positions, in this lease.
      progress: the furthest that one has come.
      reason: why the newest of those that are left out is, in one line; "" if none is.
    """

    def __init__(
        self,
        num_envs: int,
        most_per_hour: int = 10,
        *,
        progress: Progress = Progress.NONE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.most_per_hour = most_per_hour
        self.progress = progress
        self.reason = ""
        self.live = list(range(num_envs))
        self.slots = dict(enumerate(self.live))
        self._clock = clock
        # Of failures within an hour, by position. They outlive a lease, or one that fails each time
        # that it is built would start with a new budget each time.
        self._times: dict[int | None, list[float]] = {}

    def stepped(self, step_type: np.ndarray) -> None:
        """Notes what the rows of a step show."""
        if self.progress < _ENDED and (latest := max(step_type.tobytes())):  # FIRST is 0
            self.progress = _ENDED if latest >= _LAST else _STEPPED

    def failed(self, position: int | None, where: str, error: BaseException) -> str:
        """Counts a failure.

        Of a vector implementation `position` may be None: it counts against all its environments.
        Returns one line, which the caller logs or raises. Raises EnvironmentFailedError if the
        budget is spent: the environment is left out.
        """
        text = str(error) if isinstance(error, ValueFaultError | BuildError) else one_line(error)
        text = f"{where}: {text}"
        if position is not None:
            # The position is the same in all leases, the slot the learner's name of it in this one.
            text = f"environment {position} (slot {self.slots[position]}), {text}"
        if not self.most_per_hour:  # a check: its user is there and wants to see the first one
            raise EnvironmentFailedError(text) from error
        # Within an hour, not in all: a run of weeks must not lose an environment that fails daily.
        now = self._clock()
        times = [each for each in self._times.get(position, ()) if now - each < 3600] + [now]
        self._times[position] = times
        if len(times) <= self.most_per_hour:
            return f"{text} (failure {len(times)} within an hour)"
        # Raised, so that its stream ends: a lease never changes, and the next Hello offers fewer.
        self.live = [live for live in self.live if position not in (live, None)]
        self.reason = f"left out after failure {len(times)} within an hour: {text}"
        raise EnvironmentFailedError(self.reason) from error
