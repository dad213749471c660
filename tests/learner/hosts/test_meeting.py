"""How hosts find each other: over real ports, in threads."""

import contextlib
import select
import socket
import struct
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from learner.hosts import dialing, meeting
from learner.hosts.dialing import dial
from learner.hosts.hello import Hello
from learner.hosts.meeting import receive_all
from learner.hosts.messages import MessageSocket
from learner.hosts.place import Place
from learner.hosts.proof import Token, challenge
from learner.hosts.waiting import StoppedError, Waiting
from seedrl.errors import AddressInUseError, ConfigError, HostLostError
from tests.learner.hosts.linked import at_once
from tests.patience import SECONDS, wait_until

RUN = {"agent": "r2d2", "seed": "0"}
PATIENT = Waiting(lambda: False, lambda line: None, SECONDS)
TOKEN = Token("the token of this run")


def places(count: int) -> list[Place]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    return [Place(f"127.0.0.1:{port}", count, index) for index in range(count)]


def welcome_all(
    place: Place, hello: Hello, waiting: Waiting = PATIENT, token: Token = TOKEN
) -> list[int]:
    """What the first host does; whom it has met."""
    met = receive_all(place, hello, waiting, token, lambda: {"jax": "there:1"})
    for link in met.values():
        link.close()
    return list(met)


def arrive(
    place: Place, hello: Hello, waiting: Waiting = PATIENT, token: Token = TOKEN
) -> dict[str, str]:
    """What another one does; what it was told."""
    link, told = dial(place, hello, waiting, token)
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
        (Hello(0, 2, RUN), "--host-index: expected 1 to 1 beside host 0, got 0"),
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


def connected(place: Place) -> socket.socket:
    """A connection to the first host, as soon as it listens."""
    while True:
        try:
            return socket.create_connection(place.address)
        except ConnectionRefusedError:
            threading.Event().wait(0.01)


def packed(text: str) -> bytes:
    """As a message."""
    return len(text).to_bytes(4, "big") + text.encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        packed('{"hello": {"host_index": Infinity, "num_hosts": 2, "run": {}}, "challenge": "a"}'),
        packed(
            '{"hello": {"host_index": 1, "num_hosts": 2, "run": {}}, "challenge": "a", '
            '"proof": "\\ud800"}'
        ),
        b"GET / HTTP/1.1\r\n\r\n",
        b"\0\0\0\x02{}",
        b"\xff" * 64,
        b"\0\0\xff\xf0" + b"[" * 0xFFF0,
        b'\0\0\0\x0c{"hello": 7}',
    ],
)
def test_strangers_are_not_taken_for_hosts(data: bytes) -> None:
    two = places(2)

    def stranger_first() -> dict[str, str]:
        with connected(two[0]) as it:
            it.sendall(data)
        return arrive(two[1], Hello(1, 2, RUN))

    found = at_once([lambda: welcome_all(two[0], Hello(0, 2, RUN)), stranger_first])
    assert found == [[1], {"jax": "there:1"}]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (
            (70_000).to_bytes(4, "big"),
            "it sends no message of a host: expected at most 65,536 bytes, got 70,000",
        ),
        (packed("[]"), "it sends no message of a host: expected an object, got list"),
        (packed('{"hello": 7}'), "expected a host's hello, got another message"),
    ],
)
def test_what_is_no_hello_is_named_once_with_where_it_is_from(data: bytes, why: str) -> None:
    two, lines = places(2), list[str]()

    def stranger_twice() -> list[int]:
        for _ in range(2):
            with connected(two[0]) as it:
                it.sendall(data)
                while it.recv(2**16):
                    pass
        arrive(two[1], Hello(1, 2, RUN))
        return []

    waiting = PATIENT._replace(report=lines.append)
    at_once([lambda: welcome_all(two[0], Hello(0, 2, RUN), waiting), stranger_twice])
    assert lines == [f"refuses a host at 127.0.0.1: {why}"]


def test_the_log_is_not_filled_by_strangers_of_many_addresses() -> None:
    (place, _), lines = places(2), list[str]()
    with meeting._Reception(place, Hello(0, 2, RUN), TOKEN, lines.append) as reception:
        for number in range(100):
            guest: Any = SimpleNamespace(name=f"10.0.0.{number}")
            reception._report_refusal(guest, "token", "it does not have this run's token")
    assert len(lines) == 16


def test_what_answers_and_is_no_host_is_named_to_whom_waits_for_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("learner.hosts.waiting._REPORT_SECONDS", 0.0)
    two, lines = places(2), list[str]()

    def answer() -> None:
        with socket.create_server(two[1].address) as listener, listener.accept()[0] as connection:
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            while connection.recv(2**16):
                pass

    def dials() -> None:
        def is_stopped() -> bool:
            return any("no host" in line for line in lines)

        with pytest.raises(StoppedError):
            dial(two[1], Hello(1, 2, RUN), Waiting(is_stopped, lines.append, SECONDS), TOKEN)

    at_once([answer, dials])
    assert lines[-1] == (
        f"waits for host 0 at {two[1].coordinator}; what answers there is no host: "
        "expected at most 65,536 bytes, got 1,213,486,160"
    )


@pytest.mark.parametrize("index", [0, 1])
def test_a_signal_ends_the_wait(index: int) -> None:
    waiting = Waiting(lambda: True, lambda line: None, SECONDS)
    with pytest.raises(StoppedError):
        (receive_all, dial)[index](places(2)[index], Hello(index, 2, RUN), waiting, TOKEN)


@pytest.mark.parametrize("index", [0, 1])
def test_who_does_not_come_is_named(index: int) -> None:
    waiting = Waiting(lambda: False, lambda line: None, 0.0)
    with pytest.raises(HostLostError, match=f"host {1 - index} did not come"):
        (receive_all, dial)[index](places(2)[index], Hello(index, 2, RUN), waiting, TOKEN)


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = Place(f"127.0.0.1:{taken.getsockname()[1]}", 2, 0)
        with pytest.raises(AddressInUseError, match="--coordinator: cannot serve on 127"):
            receive_all(place, Hello(0, 2, RUN), PATIENT, TOKEN)


def test_a_message_that_is_too_long_is_refused() -> None:
    first, other = socket.socketpair()
    messages = MessageSocket(first, longest_bytes=10)
    other.sendall(b"\0\0\0\x0b" + b"x" * 11)
    with pytest.raises(ValueError, match="expected at most 10 bytes, got 11"):
        list(messages.receive())
    messages.close()
    other.close()


def say_hello(link: MessageSocket, hello: Hello, token: Token = TOKEN) -> None:
    """What a host says, by hand."""
    (asked,) = received(link)
    challenges, said = (asked["challenge"], challenge()), hello._asdict()
    proof = token.proof("other", challenges, said)
    link.send({"hello": said, "challenge": challenges[1], "proof": proof})


def received(link: MessageSocket) -> list[dict[str, str]]:
    """The next messages."""
    while not (found := list(link.receive())):
        pass
    return found


@pytest.mark.parametrize(("number", "seconds"), [(100, 10 * SECONDS), (1, 0.0)])
def test_strangers_that_say_nothing_make_room_for_others(
    monkeypatch: pytest.MonkeyPatch, number: int, seconds: float
) -> None:
    monkeypatch.setattr(meeting, "_HELLO_SECONDS", seconds)
    two = places(2)

    def strangers_first() -> bool:
        silent = [connected(two[0]) for _ in range(number)]
        silent[0].settimeout(SECONDS)
        while silent[0].recv(1000):  # what it is asked
            pass
        monkeypatch.setattr(meeting, "_HELLO_SECONDS", SECONDS)
        arrive(two[1], Hello(1, 2, RUN))
        for each in silent:
            each.close()
        return True

    found = at_once([lambda: welcome_all(two[0], Hello(0, 2, RUN)), strangers_first])
    assert found == [[1], True]


def is_heard(place: Place) -> None:
    """Waits until the first host has heard whatever was said before: it hears all in turn."""
    with connected(place) as stranger:
        stranger.sendall(b"no message")
        with contextlib.suppress(ConnectionResetError):
            while stranger.recv(2**16):
                pass


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_host_that_is_started_again_takes_the_place_that_it_had(is_gone: bool) -> None:
    three, lines = places(3), list[str]()

    def twice() -> dict[str, str]:
        earlier = MessageSocket(connected(three[0]))
        say_hello(earlier, Hello(1, 3, RUN))
        is_heard(three[0])
        if is_gone:
            earlier.close()
            gone = "waits for host 1 again: it was there, and is gone"
            wait_until(lambda: gone in lines, "that its end is noticed")

        def last() -> dict[str, str]:
            if not is_gone:  # a second one of that index has come, which it is told
                (refusal,) = received(earlier)
                assert refusal == {"refused": "--host-index: another host has come as 1 since"}
                earlier.close()
            return arrive(three[2], Hello(2, 3, RUN))  # not before: then all would be there

        found = at_once([lambda: arrive(three[1], Hello(1, 3, RUN)), last])
        return found[0]

    waiting = PATIENT._replace(report=lines.append)
    found = at_once([lambda: welcome_all(three[0], Hello(0, 3, RUN), waiting), twice])
    assert found == [[1, 2], {"jax": "there:1"}]


def test_of_two_hosts_the_one_that_has_connected_last_is_taken_whoever_says_hello_first() -> None:
    three = places(3)

    def twice() -> list[dict[str, str]]:
        earlier, later = [MessageSocket(connected(three[0])) for _ in range(2)]
        say_hello(later, Hello(1, 3, RUN))
        is_heard(three[0])
        say_hello(earlier, Hello(1, 3, RUN))
        (refusal,) = received(earlier)
        arrive(three[2], Hello(2, 3, RUN))
        (answer,) = received(later)
        for link in (earlier, later):
            link.close()
        return [refusal, answer["welcome"]]  # type: ignore[list-item]

    found = at_once([lambda: welcome_all(three[0], Hello(0, 3, RUN)), twice])
    assert found[0] == [1, 2]
    assert found[1] == [
        {"refused": "--host-index: another host has come as 1 since"},
        {"jax": "there:1"},
    ]


def test_a_host_that_cannot_take_part_ends_those_that_wait_for_it() -> None:
    three = places(3)
    seen = threading.Event()

    def first() -> str:
        waiting = PATIENT._replace(report=lambda line: None)
        with pytest.raises(ConfigError) as found:
            receive_all(three[0], Hello(0, 3, RUN), waiting, TOKEN)
        return str(found.value)

    def fits() -> str:
        link = MessageSocket(connected(three[0]))
        say_hello(link, Hello(1, 3, RUN))
        is_heard(three[0])
        seen.set()
        (answer,) = received(link)
        link.close()
        return answer["refused"]

    def differs() -> str:
        assert seen.wait(SECONDS)
        with pytest.raises(ConfigError) as found:
            dial(three[2], Hello(2, 3, {**RUN, "seed": "1"}), PATIENT, TOKEN)
        return str(found.value)

    texts = at_once([first, fits, differs])
    assert [text.startswith("host 2: seed: expected the same") for text in texts[:2]] == [True] * 2
    assert texts[2].startswith("seed: expected the same on all hosts")


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_hosts_meet_over_ipv6() -> None:
    port = places(1)[0].address[1]
    two = [Place(f"[::1]:{port}", 2, index) for index in range(2)]
    found = at_once(
        [
            lambda: welcome_all(two[0], Hello(0, 2, RUN)),
            lambda: arrive(two[1], Hello(1, 2, RUN)),
        ]
    )
    assert found == [[1], {"jax": "there:1"}]


def itself() -> socket.socket:
    """A connection to its own port."""
    connection = socket.socket()
    connection.bind(("127.0.0.1", 0))
    connection.connect(connection.getsockname())
    return connection


def reset() -> socket.socket:
    """A connection that its other side has reset, after the reset has arrived."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connection = socket.create_connection(listener.getsockname())
        accepted, _ = listener.accept()
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        accepted.close()
    assert select.select([connection], [], [], SECONDS)[0]
    return connection


@pytest.mark.parametrize("first", [itself, reset])
def test_a_host_that_has_not_reached_the_first_one_dials_again(
    monkeypatch: pytest.MonkeyPatch, first: Callable[[], socket.socket]
) -> None:
    two = places(2)
    connections = [first()]

    def connect(address: tuple[str, int], timeout: float) -> socket.socket:
        return connections.pop() if connections else socket.create_connection(address, timeout)

    class Sockets:
        create_connection = staticmethod(connect)

    monkeypatch.setattr(dialing, "socket", Sockets)
    found = at_once(
        [
            lambda: welcome_all(two[0], Hello(0, 2, RUN)),
            lambda: arrive(two[1], Hello(1, 2, RUN)),
        ]
    )
    assert found == [[1], {"jax": "there:1"}]
