"""How hosts find each other: over real ports, in threads."""

import socket
import threading
from collections.abc import Callable

import pytest

from learner.hosts.meeting import Hello, StoppedError, Waiting, dial, receive_all
from learner.hosts.messages import MessageSocket
from learner.hosts.place import Place
from seedrl.errors import AddressInUseError, ConfigError, HostLostError
from tests.learner.hosts.linked import at_once
from tests.patience import SECONDS

RUN = {"agent": "r2d2", "seed": "0"}
PATIENT = Waiting(lambda: False, lambda line: None, SECONDS)


def places(count: int) -> list[Place]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    return [Place(f"127.0.0.1:{port}", count, index) for index in range(count)]


def welcome_all(place: Place, hello: Hello, waiting: Waiting = PATIENT) -> list[int]:
    """What the first host does; whom it has met."""
    met = receive_all(place, hello, waiting)
    for _, link in met:
        link.send({"welcome": {"jax": "there:1"}})
        link.close()
    return [index for index, _ in met]


def arrive(place: Place, hello: Hello, waiting: Waiting = PATIENT) -> dict[str, str]:
    """What another one does; what it was told."""
    link, told = dial(place, hello, waiting)
    link.close()
    return told


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_hosts_meet_in_any_order(order: tuple[int, ...]) -> None:
    three = places(3)
    works: list[Callable[[], object]] = [
        lambda: welcome_all(three[0], Hello(0, 3, RUN)),
        lambda: arrive(three[1], Hello(1, 3, RUN)),
        lambda: arrive(three[2], Hello(2, 3, RUN)),
    ]
    found = at_once([works[index] for index in order])
    assert [found[order.index(index)] for index in range(3)] == [
        [1, 2],
        {"jax": "there:1"},
        {"jax": "there:1"},
    ]


@pytest.mark.parametrize(
    ("hello", "named"),
    [
        (Hello(1, 2, {**RUN, "seed": "1"}), "seed: expected the same on all hosts, got 1 where"),
        (Hello(1, 3, RUN), "--hosts: expected 2, as host 0 has, got 3"),
        (Hello(0, 2, RUN), "--host-index: expected one that no other host has, got 0"),
        (Hello(1, 2, {"agent": "r2d2"}), "seed: expected the same on all hosts, got None"),
    ],
)
def test_a_host_of_another_run_is_refused_and_both_say_why(hello: Hello, named: str) -> None:
    two = places(2)

    def error(work: Callable[[], object]) -> str:
        with pytest.raises(ConfigError) as found:
            work()
        return str(found.value)

    texts = at_once(
        [
            lambda: error(lambda: welcome_all(two[0], Hello(0, 2, RUN))),
            lambda: error(lambda: arrive(two[1], hello)),
        ]
    )
    assert all(named in text for text in texts), texts


@pytest.mark.parametrize("data", [b"", b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\x02{}", b"\xff" * 64])
def test_strangers_are_not_taken_for_hosts(data: bytes) -> None:
    two = places(2)

    def stranger_first() -> dict[str, str]:
        while True:
            try:
                with socket.create_connection(("127.0.0.1", int(two[0].coordinator[10:]))) as it:
                    it.sendall(data)
                break
            except ConnectionRefusedError:
                threading.Event().wait(0.01)
        return arrive(two[1], Hello(1, 2, RUN))

    found = at_once([lambda: welcome_all(two[0], Hello(0, 2, RUN)), stranger_first])
    assert found == [[1], {"jax": "there:1"}]


@pytest.mark.parametrize("index", [0, 1])
def test_a_signal_ends_the_wait(index: int) -> None:
    waiting = Waiting(lambda: True, lambda line: None, SECONDS)
    with pytest.raises(StoppedError):
        (receive_all, dial)[index](places(2)[index], Hello(index, 2, RUN), waiting)


@pytest.mark.parametrize("index", [0, 1])
def test_who_does_not_come_is_named(index: int) -> None:
    waiting = Waiting(lambda: False, lambda line: None, 0.0)
    with pytest.raises(HostLostError, match=f"host {1 - index} did not come"):
        (receive_all, dial)[index](places(2)[index], Hello(index, 2, RUN), waiting)


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = Place(f"127.0.0.1:{taken.getsockname()[1]}", 2, 0)
        with pytest.raises(AddressInUseError, match="--coordinator: cannot serve on 127"):
            receive_all(place, Hello(0, 2, RUN), PATIENT)


def test_a_message_that_is_too_long_is_refused() -> None:
    first, other = socket.socketpair()
    messages = MessageSocket(first, longest_bytes=10)
    other.sendall(b"\0\0\0\x0b" + b"x" * 11)
    with pytest.raises(ValueError, match="expected at most 10 bytes, got 11"):
        list(messages.receive())
    messages.close()
    other.close()
