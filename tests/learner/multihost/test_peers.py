"""What hosts say to each other, and how they notice a loss: real sockets, no processes."""

import functools
import socket
import threading
import time
from typing import Any

import pytest

from learner.multihost import peers as peers_module
from learner.multihost.peers import MessageSocket, Peers
from learner.multihost.topology import Topology
from learner.runtime.worker import ClosedError, Worker
from seedrl.exit_codes import ExitCode
from tests.learner.multihost.linked import at_once, linked
from tests.patience import wait_until


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.gate)])
def test_all_get_what_all_give_in_each_round_under_a_tag(count: int) -> None:
    # A message that arrives in many parts.
    large = list(range(20_000))

    def rounds(peers: Peers, tag: str) -> list[Any]:
        index = peers.topology.process_index
        return [peers.gather(tag, [tag, number, index, large]) for number in range(5)]

    with linked(count) as hosts:
        # Several threads of each host, each under a tag of its own.
        found = at_once([functools.partial(rounds, peers, tag) for tag in "abc" for peers in hosts])
        assert [(each._given, each._gathered, each.waiting) for each in hosts] == [
            ({}, {}, set())
        ] * count
    for tag in "abc":
        expected = [[[tag, number, index, large] for index in range(count)] for number in range(5)]
        for _ in range(count):
            assert found.pop(0) == expected


@pytest.mark.parametrize(
    ("data", "reason"), [(b"", "nothing"), (b"\xff" * 100, "cannot be understood")]
)
def test_a_host_that_says_nothing_or_nonsense_is_lost(data: bytes, reason: str) -> None:
    losses: list[str] = []
    first, other = socket.socketpair()
    links = {1: MessageSocket(first)}
    other.sendall(data)
    peers = Peers(Topology("there:1", 2, 0), links, lost_seconds=0.3, on_loss=losses.append)
    wait_until(lambda: losses, "a loss")
    assert len(losses) == 1 and losses[0].startswith("host 1 of 2 is lost") and reason in losses[0]
    with pytest.raises(ClosedError):
        peers.gather("tag", 0)
    peers.close()
    other.close()


def test_hosts_that_only_beat_or_send_a_long_message_are_not_lost() -> None:
    losses: list[str] = []
    with linked(2, losses, lost_seconds=1.0) as hosts:
        # The head of a message, and then a byte of it now and then.
        link = hosts[1]._links[0]
        with link._sending:
            end = time.monotonic() + 1.5
            link._socket.sendall(b"\0\1\0\0")
            while time.monotonic() < end:
                link._socket.sendall(b" ")
                threading.Event().wait(0.02)
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


class EndedError(Exception):
    """The process would be gone."""


class Late:
    """A watchdog that finds the learning thread at one piece of work for that long."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def late(self, seconds: float) -> list[str]:
        return ["learning"] if self.seconds > seconds else []


@pytest.mark.parametrize("waits", [False, True])
def test_a_thread_that_waits_for_no_other_host_ends_the_process(
    monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    def end(text: str, code: ExitCode) -> None:
        raise EndedError(text, code)

    monkeypatch.setattr(peers_module, "exit_hung", end)
    late: Any = Late(60.1)
    with linked(2) as hosts:
        if waits:
            # The other host's own watchdog comes first.
            work = functools.partial(hosts[1].gather, "vote", 0)
            Worker("learning", work, threading.Event()).start()
            wait_until(lambda: hosts[1].waiting == {"learning"}, "that it waits for a vote")
            hosts[1].end_if_stuck(60.0, late)
            late.seconds += peers_module.LOST_SECONDS
        with pytest.raises(EndedError) as caught:
            hosts[1].end_if_stuck(60.0, late)
    assert "learning" in caught.value.args[0] and caught.value.args[1] == ExitCode.TEMPORARY
