"""What hosts say to each other, and how they notice a loss: real sockets, no processes."""

import functools
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from learner.hosts.messages import MessageSocket
from learner.hosts.peers import Peers
from learner.hosts.place import Place
from learner.threads.worker import ClosedError
from tests.learner.hosts.linked import at_once, linked
from tests.patience import SECONDS, wait_until


@pytest.mark.parametrize("count", [2, 4])
def test_all_get_what_all_give_in_their_order(count: int) -> None:
    with linked(count) as hosts:
        for tag in ("a", "b"):
            found = at_once(
                [
                    lambda peers=peers, tag=tag: peers.gather(tag, [peers.place.host_index, tag])
                    for peers in hosts
                ]
            )
            assert found == [[[index, tag] for index in range(count)]] * count


def test_several_threads_gather_under_their_own_tags() -> None:
    with linked(2) as hosts:
        found = at_once(
            [
                lambda peers=peers, tag=tag: peers.gather(tag, tag + str(peers.place.host_index))
                for tag in "abc"
                for peers in (hosts if tag != "b" else reversed(hosts))
            ]
        )
    assert sorted(map(tuple, found)) == sorted((f"{tag}0", f"{tag}1") for tag in "aabbcc")


def test_a_large_message_arrives_whole() -> None:
    value = list(range(200_000))
    with linked(2) as hosts:
        found = at_once([lambda peers=peers: peers.gather("large", value) for peers in hosts])
    assert found == [[value, value]] * 2


def test_what_is_collected_goes_to_the_first_host_alone() -> None:
    with linked(3) as hosts:
        found = at_once(
            [lambda peers=peers: peers.collect("a", peers.place.host_index) for peers in hosts]
        )
        at_once([functools.partial(peers.gather, "b", 0) for peers in hosts])
        assert [peers._gathered for peers in hosts] == [{}, {}, {}]
    assert found == [[0, 1, 2], [], []]


def test_alone_nothing_is_waited_for() -> None:
    peers = Peers()
    assert peers.gather("tag", 7) == [7]
    assert peers.collect("tag", 7) == [7]
    peers.leave("the end")


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_host_that_is_gone_without_a_farewell_is_lost_for_all_others(lost: int) -> None:
    losses: list[str] = []
    with linked(3, losses) as hosts:
        hosts[lost].close()
        wait_until(lambda: len(losses) == 2, f"two losses, got {losses}")
    assert set(losses) == {f"host {lost} of 3 is lost: it is gone"}


def test_a_host_that_says_nothing_is_lost() -> None:
    losses: list[str] = []
    first, other = socket.socketpair()
    peers = Peers(
        Place("there:1", 2, 0),
        {1: MessageSocket(first)},
        beat_seconds=0.01,
        silent_beats=5,
        on_loss=losses.append,
    )
    wait_until(lambda: losses, "a loss")
    peers.close()
    other.close()
    assert losses == ["host 1 of 2 is lost: it has said nothing for 0 s"]


def test_hosts_that_only_beat_are_not_lost() -> None:
    losses: list[str] = []
    with linked(2, losses, beat_seconds=0.01, silent_beats=200) as hosts:
        for number in range(20):
            at_once([functools.partial(peers.gather, f"tag {number}", 0) for peers in hosts])
            threading.Event().wait(0.01)
            assert max(hosts[0]._silent.values()) < 200
    assert losses == []


def test_what_is_no_message_is_a_loss_and_no_more() -> None:
    losses: list[str] = []
    first, other = socket.socketpair()
    peers = Peers(Place("there:1", 2, 0), {1: MessageSocket(first)}, on_loss=losses.append)
    other.sendall(b"\xff" * 100)
    wait_until(lambda: losses, "a loss")
    peers.close()
    other.close()
    assert losses[0].startswith(
        "host 1 of 2 is lost: it cannot be understood (ValueError: expected"
    )


def test_a_host_that_fails_says_why_to_all() -> None:
    losses: list[str] = []
    with linked(3, losses) as hosts:
        hosts[1].fail("disk\nfull")
        wait_until(lambda: len(losses) >= 2, "two losses")
    assert set(losses) == {"host 1 of 3 is lost: it has failed: disk full"}


def test_a_host_that_leaves_ends_what_is_gathered_and_is_not_lost() -> None:
    losses: list[str] = []
    with linked(3, losses) as hosts:
        hosts[2].leave("SIGTERM")
        for peers in hosts[:2]:
            with pytest.raises(ClosedError):
                peers.gather("tag", 0)
            assert peers.left == {2: "SIGTERM"}
    assert losses == []


def test_hosts_that_leave_at_once_are_not_lost() -> None:
    losses: list[str] = []
    with linked(3, losses) as hosts:
        with hosts[0]._changed:  # the first one hears of neither until both are gone
            for peers in hosts[1:]:
                peers.leave("the run is over")
        wait_until(lambda: losses or len(hosts[0].left) == 2, "that both have left")
        assert hosts[0].left == {1: "the run is over", 2: "the run is over"}
    assert losses == []


def test_a_host_that_fails_reports_that_and_not_the_end_of_others_which_it_has_caused() -> None:
    losses: list[str] = []
    first, other = socket.socketpair()

    class EndingAtOnce(MessageSocket):
        def send(self, message: object) -> None:
            super().send(message)
            other.close()
            wait_until(lambda: peers._has_lost, "that the end of the other is noticed")

    peers = Peers(Place("there:1", 2, 0), {1: EndingAtOnce(first)}, on_loss=losses.append)
    peers.fail("a mistake")
    assert losses == []


def test_whoever_waits_may_look_meanwhile() -> None:
    class StopError(Exception):
        pass

    def look() -> None:
        raise StopError

    with linked(2) as hosts, pytest.raises(StopError):
        hosts[0].gather("tag", 0, look)


def test_the_first_host_knows_for_whom_a_thread_waits_and_others_that_it_is_not_done() -> None:
    with linked(3) as hosts, ThreadPoolExecutor(2) as pool:
        names: list[list[list[int]]] = [[], []]

        def gather(index: int) -> list[int]:
            peers = hosts[index]
            return peers.gather("tag", index, lambda: names[index].append(peers.waited_for()))

        given = [pool.submit(gather, index) for index in range(2)]
        wait_until(lambda: all(names) and names[0][-1] == [2], f"the last one, got {names}")
        assert names[1][-1] == [0]
        assert hosts[0].waited_for() == []  # this thread waits for nobody
        hosts[2].gather("tag", 2)
        assert [each.result(SECONDS) for each in given] == [[0, 1, 2]] * 2
        assert [peers._waiting for peers in hosts] == [{}] * 3


def test_an_error_while_others_are_lost_is_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("learner.hosts.peers._BLAME_SECONDS", 0.0)

    def body() -> None:
        raise ValueError("connection closed by peer")

    with linked(2) as hosts, pytest.raises(ValueError, match="by peer"):
        hosts[0].blamed(body)()
    assert Peers().blamed(body) is body
    assert SECONDS


def test_a_long_message_that_is_under_way_is_no_silence() -> None:
    first, other = socket.socketpair()
    peers = Peers(Place("there:1", 2, 0), {1: MessageSocket(first)}, beat_seconds=1000.0)
    peers._silent[1] = 7
    other.sendall(b"\0\1\0\0" + b" " * 1000)
    wait_until(lambda: peers._silent[1] == 0, "that the first part counts")
    peers.close()
    other.close()


def test_a_value_that_cannot_be_sent_is_a_failure_and_no_silence() -> None:
    losses: list[str] = []
    with ThreadPoolExecutor(2) as pool, linked(2, losses) as hosts:
        given = pool.submit(hosts[0].gather, "tag", object())
        wait_until(lambda: "tag" in hosts[0]._given, "the first host's value")
        other = pool.submit(hosts[1].gather, "tag", 0)
        wait_until(lambda: losses, "a loss")
        for peers in hosts:
            peers.close()
        assert {type(each.exception(SECONDS)) for each in (given, other)} == {ClosedError}
    assert losses[0].startswith(
        "host 0 of 2 is lost: it has failed: RuntimeError: expected a value"
    )
