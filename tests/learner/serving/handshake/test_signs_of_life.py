"""Who promised to say something and does not, on a clock of the test's own."""

import contextlib
import math

import grpc
import pytest

from learner.serving.handshake.signs_of_life import SignsOfLife, promised
from learner.serving.peer import EndError


class _Connection:
    def __init__(self, alive_seconds: float) -> None:
        self.alive_seconds, self.is_ready, self.has_heard = alive_seconds, True, False
        self.error: EndError | None = None

    def close(self, error: EndError | None) -> None:
        self.error = error


class _Service:
    """What a service does with its loop, and connections that have promised as much."""

    def __init__(self, *promises: float) -> None:
        self.now = 100.0
        self.signs = SignsOfLife(lambda seconds, call: None, lambda: self.now)
        self.connections = [_Connection(seconds) for seconds in promises]
        self.stack = contextlib.ExitStack()
        for connection in self.connections:
            self.stack.enter_context(self.signs.watched(connection))
        self.signs.look()

    def pass_time(self, seconds: float, *, heard: tuple[int, ...] = ()) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += 0.25
            for number in heard:
                self.connections[number].has_heard = True
            self.signs.look()

    @property
    def ended(self) -> list[bool]:
        return [connection.error is not None for connection in self.connections]


def test_who_breaks_its_promise_by_a_second_is_ended_and_no_other() -> None:
    service = _Service(1.0, 1.0, 4.0, 0.0)
    service.pass_time(2.0, heard=(0,))
    assert service.ended == [False] * 4
    service.pass_time(0.5, heard=(0,))
    assert service.ended == [False, True, False, False]
    error = service.connections[1].error
    assert error is not None and error.code is grpc.StatusCode.UNAVAILABLE
    assert str(error).startswith("nothing was heard of it for 2.5 seconds; it had promised")
    service.pass_time(3.0, heard=(0,))
    assert service.ended == [False, True, True, False]


def test_who_builds_environments_yet_has_promised_nothing() -> None:
    service = _Service(1.0)
    service.connections[0].is_ready = False
    service.pass_time(60.0)
    service.connections[0].is_ready = True
    service.pass_time(1.0)
    assert service.ended == [False]


def test_a_learner_that_stood_still_itself_listens_first() -> None:
    service = _Service(1.0)
    service.now += 30.0
    service.signs.look()
    service.pass_time(2.0)
    assert service.ended == [False]


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -1.0, 0.0, 0.1, 1e300])
def test_what_cannot_be_a_promise_is_none(seconds: float) -> None:
    assert promised(seconds) == 0.0
    assert promised(1.0) == 1.0
