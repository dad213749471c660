"""How often one address may begin a call."""

from collections.abc import Callable

# Of more addresses than that the one that was quiet for longest begins anew, with a full bucket.
_MOST_ADDRESSES = 4096


class Pace:
    """A token bucket for each address. Not thread-safe.

    A bucket is full at first, each call takes one token of it, and it fills again while time goes
    by. So the calls of one address within `t` seconds are `burst + t · per_second` at most. Who is
    charged for more may owe as much as a full bucket has.
    """

    def __init__(self, per_second: float, burst: float, clock: Callable[[], float]) -> None:
        """`clock` gives monotonic seconds."""
        self._per_second, self._burst = per_second, burst
        self._clock = clock
        # Tokens, and when there were so many; of who has called last at the end.
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, address: str) -> bool:
        """Takes a token of this address; False if it has none."""
        has_one = self._now_in(address) >= 1
        if has_one:
            self.charge(address, 1)
        return has_one

    def charge(self, address: str, tokens: float) -> None:
        """Takes so many tokens, whether it has them or not."""
        left = max(-self._burst, self._now_in(address) - tokens)
        self._buckets[address] = (left, self._clock())

    def _now_in(self, address: str) -> float:
        now = self._clock()
        tokens, then = self._buckets.pop(address, (self._burst, now))
        tokens = min(self._burst, tokens + (now - then) * self._per_second)
        self._buckets[address] = (tokens, now)
        if len(self._buckets) > _MOST_ADDRESSES:
            del self._buckets[next(iter(self._buckets))]
        return tokens
