"""How often an env server that dies is started again, and when one rests."""

import math
from collections import deque
from collections.abc import Callable, Collection
from typing import Literal

_MINUTE_SECONDS = 60.0

# `again`: at once. `rests`: in a minute, and so on until it lives for a minute. `still rests`: it
# was started after its rest, and has died again. `all rest`: nobody is left.
Verdict = Literal["again", "rests", "still rests", "all rest"]


class Restarts:
    """A budget for each env server of a run, by name. Used by one thread."""

    def __init__(self, names: Collection[str], per_minute: int, clock: Callable[[], float]) -> None:
        """`per_minute` is what each may use; `clock` gives monotonic seconds."""
        self._names, self._per_minute, self._clock = names, per_minute, clock
        self._used: dict[str, deque[float]] = {name: deque() for name in names}
        self._rested: dict[str, float] = {}  # when their last rest was over
        self._due: dict[str, float] = {}  # when a rest is over

    def died(self, name: str) -> Verdict:
        """What becomes of an env server that has just ended unasked."""
        used, now = self._used[name], self._clock()
        while used and now - used[0] >= _MINUTE_SECONDS:
            used.popleft()
        if len(used) < self._per_minute:
            used.append(now)
            return "again"
        was_resting = now - self._rested.get(name, -math.inf) < _MINUTE_SECONDS
        self._due[name] = now + _MINUTE_SECONDS
        if len(self._due) == len(self._names):
            return "all rest"
        return "still rests" if was_resting else "rests"

    def used(self, name: str) -> int:
        """Its restarts within the minute before it died last."""
        return len(self._used[name])

    def take_due(self) -> list[str]:
        """Those whose rest is over, each once: they are to be started."""
        now = self._clock()
        names = [name for name, due in self._due.items() if due <= now]
        for name in names:
            self.begun(name)
        return names

    def begun(self, name: str) -> None:
        """Ends a rest, however long it still was: the env server is started."""
        if self._due.pop(name, None) is not None:
            # One restart is all that it has until it lives for a minute.
            self._rested[name] = now = self._clock()
            self._used[name] = deque([now] * self._per_minute)

    def seconds_left(self) -> float | None:
        """Until the next rest is over; None if nobody rests."""
        return min(self._due.values()) - self._clock() if self._due else None
