"""Time in which this process ran, and waits that count no other."""

import time
from collections.abc import Callable

# What is counted of the time between two ticks at most.
_LONGEST_SECONDS = 1.0
_WAIT_SECONDS = 0.2


class AwakeClock:
    """Seconds in which this process was not suspended (Ctrl-Z, a container that was paused).

    Its owner ticks it several times a second; who is late for that was suspended, or so busy that
    counting less does no harm. Other threads may read it.

    Attributes:
      seconds: at the last tick.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._last = clock()
        self.seconds = 0.0

    def tick(self) -> float:
        """Counts the time since the tick before; returns `seconds`."""
        now = self._clock()
        self.seconds += min(now - self._last, _LONGEST_SECONDS)
        self._last = now
        return self.seconds


def wait_awake(
    wait: Callable[[float], bool], seconds: float, clock: Callable[[], float] = time.monotonic
) -> bool:
    """Whether `wait`, which takes a timeout in seconds, is successful within `seconds` awake."""
    awake = AwakeClock(clock)
    while (left := seconds - awake.tick()) > 0.0:
        if wait(min(_WAIT_SECONDS, left)):
            return True
    return wait(0.0)
