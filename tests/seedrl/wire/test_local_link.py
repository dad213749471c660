"""A link carries messages whole and in order, and whoever loses the other side hears of it."""

import contextlib
import errno
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from seedrl.wire import local_link
from seedrl.wire.framing import WireError
from seedrl.wire.local_link import (
    Buffer,
    Link,
    UnusableLinkError,
    connect_link,
    listen,
    require_room,
)
from tests.patience import SECONDS

_LIMIT = 2**22


@pytest.fixture
def ends() -> Iterator[tuple[Link, Link]]:
    """An env server's end and a learner's."""
    listener = listen()
    assert listener is not None
    with contextlib.closing(listener):
        theirs = connect_link(listener.name, _LIMIT)
        assert isinstance(theirs, Link)
        ours = listener.accept(SECONDS, _LIMIT)
        assert ours is not None
        with contextlib.closing(theirs), contextlib.closing(ours):
            yield ours, theirs


@pytest.fixture
def raw() -> Iterator[tuple[Link, socket.socket]]:
    """A link's end, and a peer that may write what it likes."""
    ours, theirs = socket.socketpair()
    with contextlib.closing(Link(ours, _LIMIT)) as link, theirs:
        yield link, theirs


def _receive_waiting(link: Link) -> Iterator[Buffer]:
    while select.select([link], [], [], SECONDS)[0]:
        messages = link.receive_at_once()
        if messages is None:
            return
        yield from messages


@pytest.mark.parametrize("receive", [Link.receive, _receive_waiting])
def test_messages_of_all_sizes_arrive_whole_and_in_order(
    ends: tuple[Link, Link], receive: Callable[[Link], Iterator[Buffer]]
) -> None:
    sizes = [0, 1, 603, 603, 2**16 - 4, 2**16, 3 * 10**6, 0, 1]
    messages = [os.urandom(size) for size in sizes]
    with ThreadPoolExecutor() as pool:
        for sender, receiver in (ends, ends[::-1]):
            received = receive(receiver)
            came = pool.submit(lambda received=received: [next(received) for _ in messages])
            for message in messages:
                sender.send(message)
            assert came.result(SECONDS) == messages


def test_what_two_threads_send_is_not_mixed(ends: tuple[Link, Link]) -> None:
    ours, theirs = ends
    # More than a socket holds: each is sent in parts.
    messages = [bytes((kind,)) * 2**20 for kind in range(8)]
    with ThreadPoolExecutor(3) as pool, contextlib.closing(ours):
        received = theirs.receive()
        arrived = pool.submit(lambda: {bytes(next(received)) for _ in messages})
        list(pool.map(ours.send, messages, timeout=SECONDS))
        assert arrived.result(SECONDS) == {*messages}


def test_what_is_sent_at_once_arrives_like_anything_else(ends: tuple[Link, Link]) -> None:
    ours, theirs = ends
    theirs.send_at_once(b"actions")
    theirs.send_at_once(b"more")
    received = ours.receive()
    assert [next(received), next(received)] == [b"actions", b"more"]


@pytest.mark.parametrize("side", [0, 1])
def test_an_end_is_heard_on_both_sides(ends: tuple[Link, Link], side: int) -> None:
    with ThreadPoolExecutor() as pool:
        came = [pool.submit(lambda end=end: list(end.receive())) for end in ends]
        ends[side].end()
        assert [each.result(SECONDS) for each in came] == [[], []]


def test_what_was_sent_before_the_end_still_arrives(ends: tuple[Link, Link]) -> None:
    ours, theirs = ends
    ours.send(b"refusal")
    ours.close()
    assert list(theirs.receive()) == [b"refusal"]


def test_a_message_cut_short_by_a_death_is_none(raw: tuple[Link, socket.socket]) -> None:
    link, peer = raw
    peer.sendall(b"\3\0\0\0abc" + b"\5\0\0\0abc")
    peer.close()
    assert list(link.receive()) == [b"abc"]


def test_a_message_may_come_byte_by_byte(raw: tuple[Link, socket.socket]) -> None:
    link, peer = raw
    assert link.receive_at_once() == ()
    came = []
    for byte in b"\3\0\0\0abc" + b"\0\0\0\0" + b"\1\0\0\0d":
        peer.sendall(bytes((byte,)))
        came.append(link.receive_at_once())
    assert [len(messages) for messages in came if messages is not None] == [
        *(0, 0, 0, 0, 0, 0, 1),
        *(0, 0, 0, 1),
        *(0, 0, 0, 0, 1),
    ]
    assert [message for messages in came if messages for message in messages] == [b"abc", b"", b"d"]
    peer.close()
    assert link.receive_at_once() is None


def test_a_message_that_is_too_long_is_not_taken_in(raw: tuple[Link, socket.socket]) -> None:
    link, peer = raw
    peer.sendall(b"\xff\xff\xff\xff")
    with pytest.raises(WireError, match="at most 4194304 bytes, got one of 4294967295"):
        next(link.receive())


def test_nothing_can_be_sent_after_the_end_and_nobody_minds(ends: tuple[Link, Link]) -> None:
    ours, theirs = ends
    theirs.close()
    for _ in range(2):
        ours.send(b"step")
        ours.send_at_once(b"step")
    assert list(ours.receive()) == []
    theirs.end()
    theirs.send_at_once(b"actions")


def test_a_peer_that_does_not_read_delays_nobody(ends: tuple[Link, Link]) -> None:
    ours, theirs = ends
    thread = threading.Thread(target=lambda: [theirs.send_at_once(bytes(2**16)) for _ in range(99)])
    thread.start()
    thread.join(SECONDS)
    assert not thread.is_alive()
    assert len(list(ours.receive())) < 99


@pytest.mark.parametrize("size", [1, 190, 200, 800, 3_000, 2**14, 2**15 + 1, 2**17 - 512])
def test_what_there_is_room_for_is_taken_in_while_nobody_reads(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_link, "_KERNEL_BUFFER_BYTES", 2**17)  # less than any system has
    number = 2**17 // (size + 512)
    require_room([size] * number)
    with pytest.raises(UnusableLinkError, match=rf"of \d+ bytes for {number + 1} group.*: 131072 "):
        require_room([size] * (number + 1))
    ours, theirs = socket.socketpair()
    with contextlib.closing(Link(ours, _LIMIT)) as link, theirs:
        assert all(link.send_at_once(bytes(size)) for _ in range(number))


def test_only_a_link_that_somebody_listens_at_can_be_reached() -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(b"\0of something else")
        other.listen(1)
        assert str(connect_link("of something else/secret", _LIMIT)).startswith("expected a name")
    assert connect_link("", _LIMIT) == "Hello names none"
    reason = connect_link("seedrl-nobody/secret", _LIMIT)
    assert str(reason).startswith("the learner finds no such socket (Connection refused)")


@pytest.mark.parametrize("length", [8, 60, 106, 107])
@pytest.mark.parametrize("is_padded", [False, True])
def test_a_name_of_any_length_is_found_also_if_it_is_filled_with_zeros(
    length: int, is_padded: bool
) -> None:
    name = f"seedrl-{os.urandom(64).hex()}"[:length]
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(b"\0" + name.encode().ljust(107 if is_padded else 0, b"\0"))
        listener.listen()
        link = connect_link(f"{name}/secret", _LIMIT)
        assert isinstance(link, Link)
        with contextlib.closing(link), listener.accept()[0] as connection:
            assert connection.recv(6, socket.MSG_WAITALL) == b"secret"


@pytest.mark.parametrize(
    "name",
    [
        "seedrl-" + "x" * 101 + "/secret",
        "seedrl-x",
        "seedrl-x/",
        "seedrl-x/" + "s" * 65,
        "seedrl-\0x/secret",
        "other/secret",
    ],
)
def test_a_name_that_cannot_be_one_is_refused_without_its_secret(name: str) -> None:
    reason = connect_link(name, _LIMIT)
    assert reason == (
        "expected a name that begins with seedrl-, of at most 107 bytes, a slash, and a secret of "
        "1 to 64 bytes"
    )


def test_whoever_does_not_know_the_secret_is_not_taken_for_the_learner() -> None:
    listener = listen()
    assert listener is not None
    name, _, secret = listener.name.partition("/")
    with contextlib.closing(listener), socket.socket(socket.AF_UNIX) as mute:
        mute.connect(f"\0{name}".encode())
        mute.shutdown(socket.SHUT_WR)
        stranger = connect_link(f"{name}/{'0' * len(secret)}", _LIMIT)
        learner = connect_link(listener.name, _LIMIT)
        assert isinstance(stranger, Link) and isinstance(learner, Link)
        ours = listener.accept(SECONDS, _LIMIT)
        assert ours is not None
        with contextlib.closing(stranger), contextlib.closing(learner), contextlib.closing(ours):
            ours.send(b"ready")
            assert next(learner.receive()) == b"ready"
            assert list(stranger.receive()) == []
            assert mute.recv(1) == b""


def test_a_secret_that_arrives_in_two_pieces_is_taken() -> None:
    listener = listen()
    assert listener is not None
    name, _, secret = listener.name.partition("/")
    with contextlib.closing(listener), socket.socket(socket.AF_UNIX) as learner:
        learner.connect(f"\0{name}".encode())
        learner.sendall(secret[:5].encode())
        rest = threading.Timer(0.05, learner.sendall, [secret[5:].encode()])
        rest.start()
        ours = listener.accept(SECONDS, _LIMIT)
        rest.join()
        assert ours is not None
        with contextlib.closing(ours):
            ours.send(b"ready")
            assert learner.recv(64).endswith(b"ready")


# Another user of this machine connects many times and says nothing.
_OTHER_USER = """
import os, socket, sys, time
os.setgroups([]), os.setgid(65534), os.setuid(65534)
mute = [socket.socket(socket.AF_UNIX) for _ in range(200)]
for each in mute:
    each.connect(chr(0) + sys.argv[1])
print("connected", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
def test_another_user_who_connects_takes_no_time_from_the_learner() -> None:
    listener = listen()
    assert listener is not None
    name, _, _ = listener.name.partition("/")
    command = [sys.executable, "-c", _OTHER_USER, name]
    with (
        contextlib.closing(listener),
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other,
    ):
        assert other.stdout is not None
        assert other.stdout.readline() == b"connected\n"
        learner = connect_link(listener.name, _LIMIT)
        assert isinstance(learner, Link)
        ours = listener.accept(SECONDS, _LIMIT)
        other.kill()
        assert ours is not None
        with contextlib.closing(learner), contextlib.closing(ours):
            ours.send(b"ready")
            assert next(learner.receive()) == b"ready"


def test_a_learner_that_does_not_come_is_not_waited_for_for_ever() -> None:
    listener = listen()
    assert listener is not None
    with contextlib.closing(listener):
        assert listener.accept(0.05, _LIMIT) is None


def test_without_sockets_there_is_no_link(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(socket, "socket", fail)
    assert listen() is None
    assert "too many open files" in str(connect_link("seedrl-somebody/secret", _LIMIT))
