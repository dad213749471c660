"""A limiter that threads share: one lock around a value, and waiting for what it allows."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence

from seedrl.replay.rate_limiter import Limiter


class RateLimiter:
    """Makes the side that is ahead wait. Shared by all threads.

    Owns the current value of a limiter, which decides everything; see `seedrl.replay.rate_limiter`.
    Where hosts share a run it is a `learner.multihost.agreement.AgreedLimiter`.
    """

    def __init__(self, limiter: Limiter):
        self._limiter = limiter
        self._is_closed = False
        self._changed = threading.Condition()

    @property
    def now(self) -> Limiter:
        """The current value."""
        with self._changed:
            return self._limiter

    def acted(self, steps: int, pages: int = 0) -> None:
        """Counts training environment steps, and the pages that they filled."""
        with self._changed:
            self._limiter = self._limiter.acted(steps, pages)
            # Only learning waits for this. Woken for nothing, it would take the interpreter
            # from acting at every batch.
            if self._limiter.may_learn():
                self._changed.notify_all()

    def dropped(self, pages: int) -> None:
        """Takes pages back that acting has filled, and that will never be learned from."""
        self.acted(0, -pages)

    def holds(self, num_sequences: Sequence[int]) -> bool:
        """Takes what each shard holds; whether there is enough to learn from."""
        with self._changed:
            self._limiter = self._limiter.holds(num_sequences)
            self._changed.notify_all()
            return self._limiter.is_ready

    def took(self) -> None:
        """Counts an update that was taken: its debt is paid."""
        with self._changed:
            self._limiter = self._limiter.took()
            self._changed.notify_all()

    def applied(self) -> None:
        """Counts an update, taken before, that was applied. Nobody waits for this."""
        with self._changed:
            self._limiter = self._limiter.applied()

    def restore(self, counts: Mapping[str, float]) -> None:
        """Continues from the counts of a checkpoint."""
        with self._changed:
            self._limiter = self._limiter.restored(counts)
            self._changed.notify_all()

    def wait_to_act(self, timeout_seconds: float) -> bool:
        """Whether training slots may act, waiting for it. False at the deadline or once closed."""
        return self._wait(lambda: self._limiter.may_act(), timeout_seconds)

    def wait_to_learn(self, timeout_seconds: float) -> bool:
        """Whether an update may be taken, waiting for it. False at the deadline or once closed.

        There is one learning thread, which calls `took` before it asks again.
        """
        return self._wait(lambda: self._limiter.may_learn(), timeout_seconds)

    def abstain(self) -> None:
        """No update can be taken yet: of several hosts, the others are told so."""

    def close(self) -> None:
        """Ends all waiting, for ever."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _wait(self, is_allowed: Callable[[], bool], timeout_seconds: float) -> bool:
        deadline = time.monotonic() + timeout_seconds
        with self._changed:
            while not self._is_closed and not is_allowed():
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    return False
                self._changed.wait(remaining)
            return not self._is_closed
