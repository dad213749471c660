"""How long a handshake may take, and how many connections may be silent."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import grpc

from learner.serving.peer import EndError

# Hello is on its way when a stream is opened.
HELLO_SECONDS = 2.0
# Of connections that have not said Hello: beyond it the oldest makes room for the newest, so that
# those that stay silent keep nobody out.
MOST_SILENT = 64
# Who looks later than by that was suspended, and has not read yet what has arrived meanwhile.
_LATE_SECONDS = 1.0


class Handshake(Protocol):
    """What is known here of a connection."""

    has_said_hello: bool
    is_ready: bool

    def close(self, error: EndError | None, /) -> None:
        """Ends it; again without effect."""
        ...


class Handshakes:
    """Ends connections whose handshake takes too long. Used by the service's loop alone.

    Who says nothing must not keep out who does: neither the streams that a server can have at once
    nor the slots that Hello reserves are held for longer than a deadline. After this process was
    suspended the present deadline begins again, once.
    """

    def __init__(
        self,
        call_later: Callable[[float, Callable[[], None]], Any],
        clock: Callable[[], float],
        *,
        ready: float,
    ):
        """`call_later` and `clock` are a loop's; Ready is due `ready` seconds after Hello was."""
        self._call_later, self._clock = call_later, clock
        self._ready_seconds = ready
        # In the order of their arrival; of some Hello has come since.
        self._silent: dict[Handshake, None] = {}
        self._timers: dict[Handshake, Any] = {}

    @contextlib.contextmanager
    def watched(self, connection: Handshake) -> Iterator[None]:
        """Holds a connection that was just opened to its deadlines."""
        self._make_room()
        self._silent[connection] = None
        self._expect(connection, HELLO_SECONDS, self._expect_hello)
        try:
            yield
        finally:
            self._silent.pop(connection, None)
            self._timers.pop(connection).cancel()

    def _expect(
        self, connection: Handshake, seconds: float, look: Callable[[Handshake], None]
    ) -> None:
        due = self._clock() + seconds

        def look_unless_late() -> None:
            if self._clock() - due <= _LATE_SECONDS:
                look(connection)
            elif connection in self._timers:
                self._timers[connection] = self._call_later(seconds, lambda: look(connection))

        self._timers[connection] = self._call_later(seconds, look_unless_late)

    def _make_room(self) -> None:
        while len(self._silent) >= MOST_SILENT:
            oldest = next(iter(self._silent))
            del self._silent[oldest]
            if not oldest.has_said_hello:
                _end(oldest, f"{MOST_SILENT} streams are open that have not said hello")

    def _expect_hello(self, connection: Handshake) -> None:
        self._silent.pop(connection, None)
        if not connection.has_said_hello:
            _end(connection, f"expected hello within {HELLO_SECONDS:.0f} seconds")
            return
        if connection in self._timers:  # else it has ended
            self._expect(connection, self._ready_seconds, self._expect_ready)

    def _expect_ready(self, connection: Handshake) -> None:
        if not connection.is_ready:
            _end(
                connection,
                f"expected ready within {self._ready_seconds:g} seconds of hello "
                "(serving.ready_deadline_seconds)",
            )


def _end(connection: Handshake, details: str) -> None:
    connection.close(EndError(grpc.StatusCode.UNAVAILABLE, details))
