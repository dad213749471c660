"""A socket link is tried if it is offered, and what is broken in it is named."""

import contextlib
import os
import socket
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import grpc
import pytest

from envs_server.server_conformance import links
from seedrl.wire.local_link import Link, listen
from seedrl.wire.seedrl_pb2 import (
    Assign,
    FromEnvServer,
    FromLearner,
    Hello,
)
from tests.envs_server.server_conformance.broken_rules import broken_rules
from tests.envs_server.server_conformance.example_server import ExampleServer, OwnDefectError
from tests.patience import SECONDS

pytestmark = pytest.mark.usefixtures("quick")


class Linked(ExampleServer):
    """Offers a socket link, and uses it as it should."""

    def stream(self, channel: grpc.Channel) -> int | None:
        self.link: Link | None = None
        with contextlib.closing(self.listen()) as self.listener:
            return super().stream(channel)

    def listen(self) -> Any:
        return listen()

    def hello(self) -> Hello:
        hello = super().hello()
        hello.link = self.listener.name
        return hello

    def build(self, assign: Assign) -> None:
        if assign.linked:
            self.link = self.accept()
        super().build(assign)
        if self.link is not None:
            with contextlib.closing(self.link):
                for data in self.receive():
                    self.handle(FromLearner.FromString(data))

    def accept(self) -> Link | None:
        return self.listener.accept(SECONDS, 2**20)

    def receive(self) -> Iterator[bytes]:
        assert self.link is not None
        return map(bytes, self.link.receive())

    def send(self, message: FromEnvServer) -> None:
        if self.link is None:
            super().send(message)
        else:
            self.link.send(message.SerializeToString())


class OtherPrefix(Linked):
    def hello(self) -> Hello:
        hello = super().hello()
        hello.link = hello.link.removeprefix("seedrl-")
        return hello


class OverGrpc(Linked):
    """Accepts the link, and does not use it."""

    def send(self, message: FromEnvServer) -> None:
        ExampleServer.send(self, message)


class ReadByRead(Linked):
    """Takes what one read brings for one message."""

    def receive(self) -> Iterator[bytes]:
        assert self.link is not None
        with socket.socket(fileno=os.dup(self.link.fileno())) as raw:
            while data := raw.recv(2**16):
                if int.from_bytes(data[:4], "little") != len(data) - 4:
                    raise OwnDefectError("not a message")
                yield data[4:]


class AnySecret(Linked):
    """Takes whoever comes first for the learner."""

    def listen(self) -> Any:
        listener = listen()
        assert listener is not None
        size = len(listener._secret)
        listener._knows_secret = lambda peer: bool(peer.recv(size))  # type: ignore[method-assign]
        return listener

    def accept(self) -> Link | None:
        with contextlib.closing(self.listener):
            return super().accept()


class KnowsNothing(Linked):
    def known(self) -> Sequence[str]:
        return []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has abstract sockets")
def test_a_refusal_over_a_link_is_one_line() -> None:
    found = broken_rules(KnowsNothing(), links.links)
    refusal = "expected Ready for CartPole-v1, got a Refusal: only CartPole-v1 is known"
    assert found == {"refused": refusal}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has abstract sockets")
@pytest.mark.parametrize(
    ("server", "text"),
    [
        (Linked, ""),
        (OtherPrefix, "Hello names a link, but expected a name that begins with seedrl-"),
        (ReadByRead, "over the link: expected a step of group"),
        (AnySecret, "a wrong secret was accepted: the learner's own connection came second"),
        (OverGrpc, "over the link: expected Ready or Refusal over the link, got it over gRPC"),
    ],
)
def test_a_link_is_tried_if_it_is_offered(server: type[ExampleServer], text: str) -> None:
    found = broken_rules(server(), links.links, links.links)
    assert found == ({} if not text else {"link": found["link"]})
    assert text in found.get("link", "")
