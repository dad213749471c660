"""The learner's end without gRPC: what goes by which way, and what ends what."""

import asyncio
import queue
from collections.abc import AsyncIterator
from typing import Any

import pytest

from seedrl.wire.channel import Received
from seedrl.wire.env_server_connection import EnvServerConnection
from seedrl.wire.framing import StepPayload, WireError
from seedrl.wire.seedrl_pb2 import Alive, Assign, FromEnvServer, FromLearner, Group, Hello

ACTIONS = memoryview(b"actions")


class Link:
    """Writes down what it is given."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.has_ended = False

    def send_actions(self, payload: memoryview) -> bool:
        self.sent.append(bytes(payload))
        return not self.has_ended

    def end(self) -> None:
        self.has_ended = True


class Receiver:
    """Answers Hello with Assign; writes down how it was left."""

    def __init__(self, transport: EnvServerConnection):
        self.transport = transport
        self.events: list[str] = []

    def receive(self, message: Received) -> bool:
        if isinstance(message, FromEnvServer):
            self.transport.hear(message.hello)
            self.transport.put(FromLearner(assign=Assign(lease=1)))
        self.events.append("received")
        return True

    def hear(self) -> None:
        self.events.append("heard")

    def fail(self, error: Exception) -> None:
        self.events.append(f"failed: {error}")

    def close(self) -> None:
        self.events.append("closed")


def _connection(link: Any) -> tuple[EnvServerConnection, Any, Receiver]:
    """One whose env server has said Hello; what goes over gRPC; and who receives."""
    outbox: Any = queue.SimpleQueue()
    transport = EnvServerConnection(outbox, lambda name: link)
    return transport, outbox, Receiver(transport)


def _read(transport: EnvServerConnection, receiver: Receiver, *messages: Received) -> list[Any]:
    """The links that were given out to be read while these messages arrived."""
    watched: list[Any] = []

    async def requests() -> AsyncIterator[Received]:
        for message in messages:
            yield message

    asyncio.run(transport.read(requests(), receiver, lambda link, _: watched.append(link)))
    return watched


HELLO = FromEnvServer(hello=Hello(link="name"))


def test_once_assign_has_said_so_actions_take_the_link_and_the_end_is_both() -> None:
    link = Link()
    transport, outbox, receiver = _connection(link)
    assert _read(transport, receiver, HELLO) == [link]
    assert receiver.events == ["received"]  # who reads the link closes
    assert outbox.get_nowait().assign.linked
    assert transport.send_actions(ACTIONS)
    assert (link.sent, outbox.empty()) == ([b"actions"], True)
    transport.end(None)
    transport.end(ValueError("too late"))
    assert (link.has_ended, outbox.get_nowait(), outbox.empty()) == (True, None, True)
    assert not transport.send_actions(ACTIONS)


def test_without_a_link_everything_goes_over_grpc() -> None:
    transport, outbox, receiver = _connection("none here")
    assert _read(transport, receiver, HELLO, StepPayload(b"")) == []
    assert receiver.events == ["received", "received", "closed"]
    assign = outbox.get_nowait().assign
    assert (assign.linked, assign.unlinked_reason) == (False, "none here")
    assert transport.send_actions(ACTIONS)
    assert outbox.get_nowait() is ACTIONS


def test_an_env_server_that_takes_no_answers_gets_no_more_than_it_can_wait_for() -> None:
    transport, outbox, receiver = _connection("none here")
    _read(transport, receiver, HELLO)
    outbox.get_nowait()
    groups = 3
    transport.put(FromLearner(assign=Assign(groups=[Group()] * groups)))
    outbox.get_nowait()
    assert [transport.send_actions(ACTIONS) for _ in range(8)] == [True] * 5 + [False] * 3
    outbox.get_nowait()
    assert transport.send_actions(ACTIONS)


def test_the_end_is_noted_once() -> None:
    noted: list[str] = []
    transport = EnvServerConnection(queue.SimpleQueue(), on_end=lambda: noted.append("ended"))
    transport.end(None)
    transport.end(WireError("too late"))
    assert noted == ["ended"]


def test_beside_a_link_nothing_more_is_expected_over_grpc() -> None:
    transport, _, receiver = _connection(Link())
    _read(transport, receiver, HELLO, StepPayload(b""))
    assert receiver.events[-1] == "failed: expected all after Hello over the link"


@pytest.mark.parametrize("link", [Link(), "none here"])
def test_signs_of_life_arrive_over_grpc_whatever_carries_the_messages(link: Any) -> None:
    transport, _, receiver = _connection(link)
    _read(transport, receiver, HELLO, FromEnvServer(alive=Alive()))
    assert receiver.events[:2] == ["received", "heard"]


@pytest.mark.parametrize("error", [None, WireError("broken")])
def test_a_link_that_is_taken_by_a_connection_that_has_ended_ends(error: Exception | None) -> None:
    link = Link()
    transport, outbox, receiver = _connection(link)
    transport.end(error)
    _read(transport, receiver, HELLO)
    assert link.has_ended
    assert outbox.get_nowait() is error  # what follows it is never sent
