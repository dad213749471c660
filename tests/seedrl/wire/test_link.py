"""A link carries messages whole and in order, and whoever loses the other side hears of it."""

import contextlib
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from seedrl.timing import GRACE_SECONDS
from seedrl.wire.framing import StepPayload, WireError, encode_from_env_server, frame_step
from seedrl.wire.learner_end import LearnerLink, connect_link
from seedrl.wire.link import (
    Buffer,
    Link,
    listen,
)
from tests.patience import SECONDS

_LIMIT = 2**22


@pytest.fixture
def ends() -> Iterator[tuple[Link, LearnerLink]]:
    """An env server's end and a learner's."""
    listener = listen()
    assert listener is not None
    with contextlib.closing(listener):
        theirs = connect_link(listener.name, _LIMIT)
        assert isinstance(theirs, LearnerLink)
        ours = listener.accept()
        assert ours is not None
        with contextlib.closing(theirs), contextlib.closing(ours):
            yield ours, theirs


@pytest.fixture
def raw() -> Iterator[tuple[LearnerLink, socket.socket]]:
    """A link's end, and a peer that may write what it likes."""
    ours, theirs = socket.socketpair()
    with contextlib.closing(LearnerLink(ours, _LIMIT)) as link, theirs:
        yield link, theirs


def _receive_waiting(link: LearnerLink) -> Iterator[Buffer]:
    while select.select([link], [], [], SECONDS)[0]:
        messages = link.receive_at_once()
        if messages is None:
            return
        yield from messages


@pytest.mark.parametrize("receive", [Link.receive, _receive_waiting])
def test_messages_of_all_sizes_arrive_whole_and_in_order(
    ends: tuple[Link, LearnerLink], receive: Callable[[Link], Iterator[Buffer]]
) -> None:
    sizes = [0, 1, 603, 603, 2**16 - 4, 2**16, 3 * 10**6, 0, 1]
    messages = [os.urandom(size) for size in sizes]
    with ThreadPoolExecutor() as pool:
        # Only a learner's end receives without waiting.
        directions = [ends, ends[::-1]] if receive is Link.receive else [ends]
        for sender, receiver in directions:
            received = receive(receiver)
            came = pool.submit(lambda received=received: [next(received) for _ in messages])
            for message in messages:
                sender.send(message)
            assert came.result(SECONDS) == messages


@pytest.mark.parametrize("rows", [3, 3000])
def test_a_step_in_parts_arrives_as_its_one_message(
    ends: tuple[Link, LearnerLink], rows: int
) -> None:
    image = np.arange(rows * 200, dtype=np.uint8).reshape(rows, 20, 10)  # more than a socket holds
    step = frame_step(8 + image.nbytes, [bytes(8), image.data])
    with ThreadPoolExecutor() as pool:
        came = pool.submit(lambda: bytes(next(ends[1].receive())))
        ends[0].send(step)
        expected = encode_from_env_server(StepPayload(bytes(8) + image.tobytes()))
        image[:] = 0  # as the next step of its environments does
        assert came.result(SECONDS) == expected


@pytest.mark.parametrize("side", [0, 1])
def test_an_end_is_heard_on_both_sides(ends: tuple[Link, LearnerLink], side: int) -> None:
    with ThreadPoolExecutor() as pool:
        came = [pool.submit(lambda end=end: list(end.receive())) for end in ends]
        ends[side].end()
        assert [each.result(SECONDS) for each in came] == [[], []]


def test_a_message_cut_short_by_a_death_is_none(raw: tuple[LearnerLink, socket.socket]) -> None:
    link, peer = raw
    peer.sendall(b"\3\0\0\0abc" + b"\5\0\0\0abc")
    peer.close()
    assert list(link.receive()) == [b"abc"]


def test_a_message_may_come_byte_by_byte(raw: tuple[LearnerLink, socket.socket]) -> None:
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


def test_a_message_that_is_too_long_is_not_taken_in(raw: tuple[LearnerLink, socket.socket]) -> None:
    link, peer = raw
    peer.sendall(b"\xff\xff\xff\xff")
    with pytest.raises(WireError):
        next(link.receive())


def test_a_peer_that_does_not_read_delays_nobody(ends: tuple[Link, LearnerLink]) -> None:
    ours, theirs = ends
    thread = threading.Thread(target=lambda: [theirs.send_at_once(bytes(2**16)) for _ in range(99)])
    thread.start()
    thread.join(SECONDS)
    assert not thread.is_alive()
    assert len(list(ours.receive())) < 99


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
        ours = listener.accept()
        assert ours is not None
        with contextlib.closing(stranger), contextlib.closing(learner), contextlib.closing(ours):
            ours.send(b"ready")
            assert next(learner.receive()) == b"ready"
            assert list(stranger.receive()) == []
            assert mute.recv(1) == b""


def test_one_that_says_nothing_does_not_keep_the_learner_waiting() -> None:
    listener = listen()
    assert listener is not None
    name = listener.name.partition("/")[0]
    with contextlib.closing(listener), contextlib.ExitStack() as stack:
        for _ in range(3):
            mute = stack.enter_context(socket.socket(socket.AF_UNIX))
            mute.connect(f"\0{name}".encode())
        learner = connect_link(listener.name, _LIMIT)
        assert isinstance(learner, Link)
        began = time.monotonic()
        ours = listener.accept()
        assert ours is not None and time.monotonic() - began < GRACE_SECONDS
        with contextlib.closing(learner), contextlib.closing(ours):
            ours.send(b"ready")
            assert next(learner.receive()) == b"ready"


def test_a_secret_that_arrives_in_two_pieces_is_taken() -> None:
    listener = listen()
    assert listener is not None
    name, _, secret = listener.name.partition("/")
    with contextlib.closing(listener), socket.socket(socket.AF_UNIX) as learner:
        learner.connect(f"\0{name}".encode())
        learner.sendall(secret[:5].encode())
        rest = threading.Timer(0.05, learner.sendall, [secret[5:].encode()])
        rest.start()
        ours = listener.accept()
        rest.join()
        assert ours is not None
        with contextlib.closing(ours):
            ours.send(b"ready")
            assert learner.recv(64).endswith(b"ready")
