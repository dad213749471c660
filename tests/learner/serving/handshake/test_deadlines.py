"""Handshakes that take too long, on a clock of the test's own."""

import contextlib
from collections.abc import Callable

import grpc

from learner.serving.handshake.deadlines import HELLO_SECONDS, MOST_SILENT, Handshakes
from learner.serving.peer import EndError

READY = 120.0


class _Timer:
    """Of a loop: what is called, and when."""

    def __init__(self, when: float, call: Callable[[], None]) -> None:
        self.when, self.call = when, call

    def cancel(self) -> None:
        self.when = float("inf")


class _Loop:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[_Timer] = []

    def call_later(self, seconds: float, call: Callable[[], None]) -> _Timer:
        self.timers.append(_Timer(self.now + seconds, call))
        return self.timers[-1]

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for timer in [timer for timer in self.timers if timer.when <= self.now]:
            self.timers.remove(timer)
            timer.call()


class _Connection:
    """How far it is, and how it was ended."""

    def __init__(self) -> None:
        self.has_said_hello = self.is_ready = False
        self.error: EndError | None = None

    def close(self, error: EndError | None) -> None:
        self.error = error


def _opened(number: int) -> tuple[_Loop, contextlib.ExitStack, Handshakes, list[_Connection]]:
    loop, stack = _Loop(), contextlib.ExitStack()
    handshakes = Handshakes(loop.call_later, lambda: loop.now, ready=READY)
    connections = [_Connection() for _ in range(number)]
    for connection in connections:
        stack.enter_context(handshakes.watched(connection))
    return loop, stack, handshakes, connections


def test_hello_is_due_at_once_and_ready_when_environments_may_be_built() -> None:
    loop, stack, _, (silent, building, ready) = _opened(3)
    building.has_said_hello = ready.has_said_hello = True
    loop.pass_time(HELLO_SECONDS)
    assert silent.error is not None and building.error is None
    assert silent.error.code is grpc.StatusCode.UNAVAILABLE
    assert str(silent.error) == "expected hello within 2 seconds"
    ready.is_ready = True
    loop.pass_time(READY - 1)
    assert building.error is None
    loop.pass_time(1)
    assert building.error is not None and ready.error is None
    assert building.error.code is grpc.StatusCode.UNAVAILABLE
    assert str(building.error).startswith("expected ready within 120 seconds of hello (serving.")
    stack.close()


def test_who_was_suspended_gives_the_present_deadline_again_and_once() -> None:
    loop, stack, _, (silent, building) = _opened(2)
    loop.pass_time(HELLO_SECONDS + 60)
    assert silent.error is None
    building.has_said_hello = True  # that was read since
    loop.pass_time(HELLO_SECONDS)
    assert silent.error is not None
    loop.pass_time(READY + 60)
    assert building.error is None
    loop.pass_time(READY + 60)
    assert building.error is not None
    stack.close()


def test_what_has_ended_is_not_ended_again() -> None:
    loop, stack, _, connections = _opened(2)
    connections[1].has_said_hello = True
    stack.close()
    loop.pass_time(HELLO_SECONDS)
    loop.pass_time(READY)
    assert [connection.error for connection in connections] == [None, None]
    assert not loop.timers or min(timer.when for timer in loop.timers) == float("inf")


def test_those_that_say_nothing_make_room_for_those_that_arrive() -> None:
    _, stack, handshakes, connections = _opened(MOST_SILENT)
    connections[0].has_said_hello = True
    with handshakes.watched(_Connection()), handshakes.watched(_Connection()):
        # The oldest has said hello meanwhile: it is not counted any more, and not ended.
        assert [each.error is None for each in connections[:3]] == [True, False, True]
    assert str(connections[1].error) == "64 streams are open that have not said hello"
    stack.close()
