"""Env servers that stand still: those that have promised to say something, and do not."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import grpc

from learner.serving.peer import EndError

_LOOK_SECONDS = 0.25
# What a message may take, and who is late may be late by.
_GRACE_SECONDS = 1.0
_PROMISES = (0.5, 60.0)


class Heard(Protocol):
    """What is known here of a connection."""

    is_ready: bool
    alive_seconds: float
    has_heard: bool

    def close(self, error: EndError | None, /) -> None:
        """Ends it; again without effect."""
        ...


class SignsOfLife:
    """Ends connections that break their promise. Used by the service's loop alone.

    gRPC's own pings find the same, but all of a server's connections have one limit for them, and
    that must suit programs which step environments in the thread that answers pings.
    """

    def __init__(
        self, call_later: Callable[[float, Callable[[], None]], Any], clock: Callable[[], float]
    ):
        """`call_later` and `clock` are a loop's."""
        self._call_later = call_later
        self._clock = clock
        self._heard: dict[Heard, float] = {}
        self._due = 0.0

    @contextlib.contextmanager
    def watched(self, connection: Heard) -> Iterator[None]:
        """Holds a connection to what it promises."""
        self._heard[connection] = self._clock()
        try:
            yield
        finally:
            del self._heard[connection]

    def look(self) -> None:
        """Looks at all of them, from now on again and again."""
        now = self._clock()
        # This process itself stood still: what has arrived meanwhile is not read yet.
        was_away = now > self._due + _GRACE_SECONDS / 2
        self._due = now + _LOOK_SECONDS
        self._call_later(_LOOK_SECONDS, self.look)
        for connection, heard in list(self._heard.items()):
            if connection.has_heard or was_away or not connection.is_ready:
                connection.has_heard = False
                self._heard[connection] = now
            elif 0 < connection.alive_seconds < now - heard - _GRACE_SECONDS:
                connection.close(
                    EndError(
                        grpc.StatusCode.UNAVAILABLE,
                        f"nothing was heard of it for {now - heard:.1f} seconds; it had promised "
                        f"a sign of life every {connection.alive_seconds:.1f}",
                    )
                )


def promised(seconds: float) -> float:
    """What Hello promises, as far as it can be believed; 0 for nothing."""
    lowest, highest = _PROMISES
    return seconds if lowest <= seconds <= highest else 0.0
