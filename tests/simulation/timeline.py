"""Simulated time."""

import heapq
import random
from collections.abc import Callable


class Timeline:
    """Runs what was planned in the order of its time; the seed decides among what is at one time.

    Attributes:
      now: seconds.
      num_events: how many have run.
      trace: a hash of all that has happened: equal histories have equal ones, in one process.
    """

    def __init__(self, random_numbers: random.Random):
        self.now = 0.0
        self.num_events = 0
        self._random = random_numbers
        self._planned: list[tuple[float, float, int, str, Callable[[], None]]] = []
        self._num_planned = 0
        self.trace = 0

    def after(self, seconds: float, name: str, action: Callable[[], None]) -> None:
        """Plans `action`."""
        self._num_planned += 1
        entry = (self.now + seconds, self._random.random(), self._num_planned, name, action)
        heapq.heappush(self._planned, entry)

    def run(self, until: float) -> None:
        """Runs everything planned before `until`, and what that plans."""
        while self._planned and self._planned[0][0] < until:
            self.now, _, _, name, action = heapq.heappop(self._planned)
            self.num_events += 1
            self.trace = hash((self.trace, self.now, name))
            action()
        self.now = until
