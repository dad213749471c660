"""How hosts find each other, and who may meet: over real ports, in threads."""

import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from learner.multihost import meeting
from learner.multihost.meeting import _proof, dial, receive_all
from learner.multihost.peers import MessageSocket
from learner.multihost.topology import Topology
from seedrl.errors import ConfigError, HostLostError
from tests.learner.multihost.linked import at_once
from tests.patience import SECONDS

RUN = {"agent": "r2d2", "seed": "0"}
TOKEN = "the token of this run"


def idle() -> None:
    """No signal comes."""


def stopped() -> None:
    """One has come."""
    raise InterruptedError


def topologies(count: int) -> list[Topology]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    return [Topology(f"127.0.0.1:{port}", count, index) for index in range(count)]


def receive(topology: Topology, token: str = TOKEN) -> list[int]:
    """What the first host does; whom it has met."""
    met = receive_all(topology, RUN, token, poll=idle, seconds=SECONDS)
    for link in met.values():
        link.close()
    return list(met)


def arrive(topology: Topology, run: dict[str, str] = RUN, token: str = TOKEN) -> bool:
    """What another one does; whether it is welcome."""
    dial(topology, run, token, poll=idle, seconds=SECONDS).close()
    return True


def refused(work: Callable[[], object]) -> str:
    """The line of its error."""
    with pytest.raises(ConfigError) as found:
        work()
    return str(found.value)


@pytest.mark.parametrize(("order", "token"), [((0, 1, 2), TOKEN), ((2, 1, 0), "")])
def test_hosts_meet_in_any_order(order: tuple[int, ...], token: str) -> None:
    three = topologies(3)
    works: list[Callable[[], object]] = [
        lambda: receive(three[0], token=token),
        lambda: arrive(three[1], token=token),
        lambda: arrive(three[2], token=token),
    ]
    found = at_once([works[index] for index in order])
    assert [found[order.index(index)] for index in range(3)] == [[1, 2], True, True]


@pytest.mark.parametrize(
    ("index", "run", "field"),
    [
        (1, {**RUN, "seed": "1"}, "seed"),
        (1, {"agent": "r2d2"}, "seed"),
        (3, RUN, "--process-index"),
        (0, RUN, "--process-index"),
    ],
)
def test_a_host_of_another_run_is_refused_and_all_name_the_field(
    index: int, run: dict[str, str], field: str
) -> None:
    three, is_there = topologies(3), threading.Event()

    def fits() -> str:
        link = MessageSocket(connected(three[0]))
        say_hello(link, 1)
        is_there.set()
        (answer,) = received(link)
        link.close()
        return answer["refused"]

    def differs() -> str:
        assert is_there.wait(SECONDS)
        return refused(lambda: arrive(three[0]._replace(process_index=index), run))

    texts = at_once([lambda: refused(lambda: receive(three[0])), fits, differs])
    assert [f": {field}: expected" in text for text in texts] == [True] * 3, texts


def connected(topology: Topology) -> socket.socket:
    """A connection to the first host, as soon as it listens."""
    while True:
        try:
            return socket.create_connection(topology.address)
        except ConnectionRefusedError:
            threading.Event().wait(0.01)


def say_hello(link: MessageSocket, index: int) -> None:
    """What a host says, by hand."""
    (asked,) = received(link)
    said, own = [index, RUN], "any challenge"
    proof = _proof(TOKEN, "other", (asked["challenge"], own), said)
    link.send({"hello": said, "challenge": own, "proof": proof})


def received(link: MessageSocket) -> list[dict[str, Any]]:
    """The next messages."""
    while not (found := list(link.receive())):
        pass
    return found


def packed(text: str) -> bytes:
    """As a message."""
    return len(text).to_bytes(4, "big") + text.encode()


@pytest.mark.parametrize(
    "data",
    [
        None,  # says nothing, for as long as it may
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        (70_000).to_bytes(4, "big"),
        packed("{}"),
        packed("[" * 0xFFF0),
        packed('{"hello": [Infinity, {}], "challenge": "a", "proof": "a"}'),
        packed('{"hello": [1, {"a": [[[]]]}], "challenge": "a", "proof": "a"}'),
        packed('{"hello": [1, {}], "challenge": "a", "proof": "\\ud800"}'),
        packed('{"hello": [1, {}], "challenge": "a"}'),
    ],
)
def test_strangers_are_not_taken_for_hosts(
    data: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meeting, "GRACE_SECONDS", 0.5)
    two = topologies(2)

    def stranger_first() -> bool:
        with connected(two[0]) as it:
            it.sendall(data or b"")
            if data is not None:
                it.close()
            return arrive(two[1])

    assert at_once([lambda: receive(two[0]), stranger_first]) == [[1], True]


def test_a_host_that_is_started_again_takes_the_place_that_it_had() -> None:
    three = topologies(3)

    def twice() -> list[Any]:
        earlier = MessageSocket(connected(three[0]))
        say_hello(earlier, 1)
        later = MessageSocket(connected(three[0]))
        say_hello(later, 1)
        (refusal,) = received(earlier)
        arrive(three[2])
        (answer,) = received(later)
        for link in (earlier, later):
            link.close()
        return [refusal["refused"].partition(":")[0], "proof" in answer]

    found = at_once([lambda: receive(three[0]), twice])
    assert found == [[1, 2], ["--process-index", True]]


@pytest.mark.parametrize("index", [0, 1])
def test_a_wait_ends_at_a_signal_and_in_time_and_names_who_did_not_come(index: int) -> None:
    works = [receive_all, dial]
    own = topologies(2)[index]
    with pytest.raises(InterruptedError):
        works[index](own, RUN, TOKEN, poll=stopped)
    with pytest.raises(HostLostError, match=f"missing: {1 - index}"):
        works[index](own, RUN, TOKEN, poll=idle, seconds=0.0)


@pytest.mark.parametrize("token", ["another token", ""])
def test_a_host_without_the_token_is_refused_and_the_first_one_waits_on(token: str) -> None:
    two = topologies(2)

    def refused_first() -> str:
        text = refused(lambda: arrive(two[1], token=token))
        arrive(two[1])
        return text

    met, text = at_once([lambda: receive(two[0]), refused_first])
    assert met == [1] and "--token-file" in text


def test_a_hello_that_was_heard_elsewhere_admits_nobody() -> None:
    two = topologies(2)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def overheard() -> None:
            """What a host says to what it takes for the first one."""
            link = MessageSocket(socket.create_connection(listener.getsockname()))
            say_hello(link, 1)
            link.close()

        def thief() -> str:
            host = MessageSocket(listener.accept()[0])
            host.send({"challenge": "the thief's own"})
            (hello,) = received(host)
            link = MessageSocket(connected(two[0]))
            received(link)
            link.send(hello)
            (refusal,) = received(link)
            link.close()
            host.close()
            arrive(two[1])
            return refusal["refused"]

        found = at_once([lambda: receive(two[0]), thief, overheard])
    assert found[0] == [1] and "--token-file" in found[1]


def test_a_first_host_that_does_not_show_the_token_is_not_believed() -> None:
    _, topology = topologies(2)
    with socket.create_server(topology.address) as listener:

        def impostor() -> None:
            link = MessageSocket(listener.accept()[0])
            link.send({"challenge": "anything"})
            (hello,) = received(link)
            # What it was sent itself is no proof of the other side.
            link.send({"proof": hello["proof"]})
            with pytest.raises(EOFError):
                received(link)
            link.close()

        _, text = at_once([impostor, lambda: refused(lambda: arrive(topology))])
    assert topology.coordinator in text
