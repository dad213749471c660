"""What hosts say to each other, and how they notice a loss: real sockets, no processes."""

import functools
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from learner.multihost import peers as peers_module
from learner.multihost.peers import MessageSocket, Peers
from learner.multihost.topology import Topology
from learner.runtime.worker import ClosedError, Worker
from seedrl.exit_codes import ExitCode
from tests.learner.multihost.linked import at_once, linked
from tests.patience import wait_until


@pytest.mark.parametrize("count", [2, 4])
def test_all_get_what_all_give_in_their_order(count: int) -> None:
    with linked(count) as hosts:
        for tag in ("a", "b"):
            found = at_once(
                [functools.partial(each.gather, tag, [i, tag]) for i, each in enumerate(hosts)]
            )
            assert found == [[[index, tag] for index in range(count)]] * count
        assert [(each._given, each._gathered, each.waiting) for each in hosts] == [
            ({}, {}, set())
        ] * count


def test_several_threads_gather_under_their_own_tags() -> None:
    with linked(2) as hosts:
        found = at_once(
            [
                functools.partial(peers.gather, tag, tag + str(peers.topology.process_index))
                for tag in "abc"
                for peers in (hosts if tag != "b" else reversed(hosts))
            ]
        )
    assert sorted(map(tuple, found)) == sorted((f"{tag}0", f"{tag}1") for tag in "aabbcc")


def test_a_large_message_arrives_whole() -> None:
    value = list(range(200_000))
    with linked(2) as hosts:
        found = at_once([functools.partial(peers.gather, "large", value) for peers in hosts])
    assert found == [[value, value]] * 2


def test_a_host_alone_waits_for_no_other() -> None:
    peers = Peers()
    assert peers.gather("tag", 7) == [7]
    assert peers.blamed(peers.leave) == peers.leave
    peers.leave()


@pytest.fixture
def pair() -> Iterator[tuple[Peers, socket.socket, list[str]]]:
    """The first of two hosts, the socket of the other, and the losses of the first."""
    losses: list[str] = []
    first, other = socket.socketpair()
    topology = Topology("there:1", 2, 0)
    peers = Peers(topology, {1: MessageSocket(first)}, beat_seconds=0.02, on_loss=losses.append)
    yield peers, other, losses
    peers.close()
    other.close()


def test_a_host_that_says_nothing_is_lost(pair: tuple[Peers, socket.socket, list[str]]) -> None:
    _, _, losses = pair
    wait_until(lambda: losses, "a loss")
    assert losses == ["host 1 of 2 is lost: it has said nothing for 0 s"]


def test_what_is_no_message_is_a_loss(pair: tuple[Peers, socket.socket, list[str]]) -> None:
    peers, other, losses = pair
    other.sendall(b"\xff" * 100)
    wait_until(lambda: losses, "a loss")
    assert losses[0].startswith("host 1 of 2 is lost: it cannot be understood (ValueError: expec")
    with pytest.raises(ClosedError):
        peers.gather("tag", 0)


def test_a_long_message_that_is_under_way_is_no_silence(
    pair: tuple[Peers, socket.socket, list[str]],
) -> None:
    peers, other, losses = pair
    other.sendall(b"\0\1\0\0")
    end = time.monotonic() + 0.8
    while time.monotonic() < end:
        other.sendall(b" ")
        threading.Event().wait(0.02)
    assert losses == []
    assert peers._silent[1] < 20


def test_hosts_that_only_beat_are_not_lost() -> None:
    losses: list[str] = []
    with linked(2, losses, beat_seconds=0.02):
        threading.Event().wait(0.8)
    assert losses == []


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_host_that_is_gone_is_lost_for_all_others(lost: int) -> None:
    losses: list[str] = []
    with linked(3, losses) as hosts:
        hosts[lost].close()
        wait_until(lambda: len(losses) == 2, f"two losses, got {losses}")
    assert set(losses) == {f"host {lost} of 3 is lost: it is gone"}


@pytest.mark.parametrize("lost", [0, 1])
def test_a_host_that_fails_gives_its_reason_to_all(lost: int) -> None:
    losses: list[str] = []
    with linked(3, losses) as hosts:
        hosts[lost].fail("disk\nfull")
        hosts[lost].fail("and what follows from that")
        wait_until(lambda: len(losses) >= 2, "two losses")
    assert losses == [f"host {lost} of 3 is lost: disk full"] * 2


def test_hosts_that_leave_at_the_end_are_not_lost_and_nothing_can_be_gathered() -> None:
    losses: list[str] = []
    with linked(3, losses) as hosts:
        with hosts[0]._changed:  # the first one hears of neither until both are gone
            for peers in hosts[1:]:
                peers.leave()
        wait_until(lambda: losses or len(hosts[0]._left) == 2, "that both have left")
        for peers in hosts:
            with pytest.raises(ClosedError):
                peers.gather("tag", 0)
    assert losses == []


def test_a_host_that_fails_reports_that_and_not_the_end_of_others_which_it_has_caused() -> None:
    losses: list[str] = []
    first, other = socket.socketpair()

    class EndingAtOnce(MessageSocket):
        def send(self, message: object) -> None:
            super().send(message)
            other.close()
            threading.Event().wait(0.1)

    peers = Peers(Topology("there:1", 2, 0), {1: EndingAtOnce(first)}, on_loss=losses.append)
    peers.fail("a mistake")
    assert losses == []


def test_whoever_gathers_polls_meanwhile() -> None:
    class StopError(Exception):
        pass

    def poll() -> None:
        raise StopError

    with linked(2) as hosts, pytest.raises(StopError):
        hosts[0].gather("tag", 0, poll)


def test_an_error_waits_for_the_loss_that_may_have_caused_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(peers_module, "_BLAME_SECONDS", 0.2)

    def body() -> None:
        raise ValueError("connection closed by peer")

    start = time.monotonic()
    with linked(2) as hosts, pytest.raises(ValueError, match="by peer"):
        hosts[0].blamed(body)()
    assert time.monotonic() - start >= 0.2


class EndedError(Exception):
    """The process would be gone."""


class Late:
    """A watchdog that finds the learning thread at one piece of work for that long."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def late(self, seconds: float) -> list[str]:
        return ["learning"] if self.seconds > seconds else []


@pytest.fixture
def _ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def end(text: str, code: ExitCode) -> None:
        raise EndedError(text, code)

    monkeypatch.setattr(peers_module, "exit_hung", end)


@pytest.mark.usefixtures("_ends")
def test_a_thread_that_waits_for_no_other_host_ends_the_process() -> None:
    late: Any = Late(60.1)
    with linked(2) as hosts, pytest.raises(EndedError) as caught:
        hosts[0].end_if_stuck(60.0, late)
    text = "learning finished nothing for 60 seconds (logging.stuck_seconds)"
    assert caught.value.args == (text, ExitCode.TEMPORARY)


@pytest.mark.usefixtures("_ends")
def test_a_thread_that_waits_for_another_host_has_half_a_minute_more() -> None:
    with linked(2) as hosts:
        work = functools.partial(hosts[1].gather, "vote", 0)
        Worker("learning", work, threading.Event()).start()
        wait_until(lambda: hosts[1].waiting == {"learning"}, "that it waits for a vote")
        late: Any = Late(89.9)
        hosts[1].end_if_stuck(60.0, late)
        late.seconds = 90.1
        with pytest.raises(EndedError):
            hosts[1].end_if_stuck(60.0, late)
