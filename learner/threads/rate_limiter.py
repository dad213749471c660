"""The rate limiter: keeps learning and acting at the configured replay ratio.

With E the training environment steps since learning became possible, T the trained steps, r the
replay ratio, b the trained steps of one update and c the tolerance in updates (cf. the rate limiter
of Cassirer et al. 2021, Reverb, which bounds samples_per_insert * inserts - samples):

    owed = r * E - T
    learning may take an update   iff  ready and owed >= b
    acting on training slots waits iff ready and owed >= c * b

Hence, if at most n environment steps are taken between two questions whether to act,

    0 <= owed < c * b + r * n

so the measured ratio T / E is never above r, and is below it by less than c updates whenever acting
is allowed to go on.

At every moment one of the two may go on, for any r, b and any c >= 1: not ready, acting may; ready
with owed < c * b, acting may; ready with owed >= c * b, owed >= b and learning may. Both sides
decide on one value of `owed`, so that rounding cannot come between them.
"""

import math
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from seedrl.errors import ConfigError


class RateLimiterState(NamedTuple):
    """What a checkpoint keeps of a limiter: E, T, and the ratio r that they were counted under."""

    env_steps: int
    trained_steps: int
    replay_ratio: float


class RateLimiter:
    """Counts both sides and makes the one that is ahead wait. Shared by all threads.

    Args:
      replay_ratio: r, trained (non-burn-in) steps per training environment step.
      batch_steps: b, sequences of an update times rows trained of each.
      tolerance_updates: c, how many updates acting may run ahead of learning.

    Raises ConfigError for settings under which no side, or only one, could ever go on.
    """

    def __init__(self, *, replay_ratio: float, batch_steps: int, tolerance_updates: float):
        if not (math.isfinite(replay_ratio) and replay_ratio > 0):
            raise ConfigError(
                f"expected learning.replay_ratio to be a positive number, got {replay_ratio}"
            )
        # math.inf is allowed: acting never waits.
        if not tolerance_updates >= 1:
            raise ConfigError(
                f"expected learning.tolerance_updates of at least 1, got {tolerance_updates}; "
                "below that acting would wait for updates that may not be taken yet"
            )
        assert batch_steps >= 1
        self._replay_ratio = replay_ratio
        self._batch_steps = batch_steps
        self._most_owed = tolerance_updates * batch_steps
        self._env_steps = 0
        self._trained_steps = 0
        self._is_ready = False
        self._is_closed = False
        self._changed = threading.Condition()

    def acted(self, steps: int) -> None:
        """Counts training environment steps. They are owed only while the limiter is ready."""
        with self._changed:
            if self._is_ready:
                self._env_steps += steps
                # Only learning waits for this. Woken for nothing, it would take the interpreter
                # from acting at every batch.
                if self._may_learn():
                    self._changed.notify_all()

    def trained(self) -> None:
        """Counts an update."""
        with self._changed:
            self._trained_steps += self._batch_steps
            self._changed.notify_all()

    def set_ready(self, is_ready: bool) -> None:
        """Says whether replay can be sampled. While it cannot, acting is free and owes nothing."""
        with self._changed:
            self._is_ready = is_ready
            self._changed.notify_all()

    def wait_to_act(self, timeout_seconds: float) -> bool:
        """Whether training slots may act, waiting for it. False at the deadline or once closed."""
        return self._wait(self._may_act, timeout_seconds)

    def wait_to_learn(self, timeout_seconds: float) -> bool:
        """Whether an update may be taken, waiting for it. False at the deadline or once closed.

        There is one learning thread, which calls `trained` before it asks again.
        """
        return self._wait(self._may_learn, timeout_seconds)

    def close(self) -> None:
        """Ends all waiting, for ever."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    @property
    def owed_steps(self) -> float:
        """Trained steps that are due."""
        with self._changed:
            return self._owed()

    @property
    def measured_ratio(self) -> float:
        """Trained steps per environment step, T / E; 0 before the first step that counts."""
        with self._changed:
            return self._trained_steps / self._env_steps if self._env_steps else 0.0

    def state(self) -> RateLimiterState:
        """The counts, for a checkpoint."""
        with self._changed:
            return RateLimiterState(self._env_steps, self._trained_steps, self._replay_ratio)

    def restore(self, state: RateLimiterState) -> None:
        """Continues from counts. Those of another ratio are dropped: their debt is of no meaning.

        Kept, they would make a run resumed at a higher ratio first train for all of its past.
        """
        with self._changed:
            if state.replay_ratio == self._replay_ratio:
                self._env_steps = int(state.env_steps)
                self._trained_steps = int(state.trained_steps)
            else:
                self._env_steps = self._trained_steps = 0
            self._changed.notify_all()

    def _owed(self) -> float:
        return self._replay_ratio * self._env_steps - self._trained_steps

    def _may_act(self) -> bool:
        return not self._is_ready or self._owed() < self._most_owed

    def _may_learn(self) -> bool:
        return self._is_ready and self._owed() >= self._batch_steps

    def _wait(self, is_allowed: Callable[[], bool], timeout_seconds: float) -> bool:
        deadline = time.monotonic() + timeout_seconds
        with self._changed:
            while not self._is_closed and not is_allowed():
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    return False
                self._changed.wait(remaining)
            return not self._is_closed
