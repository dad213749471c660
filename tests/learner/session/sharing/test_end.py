"""The end of a run on several hosts."""

import pytest

from learner.hosts.agenda import Agenda, Hosts, alone
from learner.hosts.peers import Peers
from learner.session.end_of_run import EndOfRun
from learner.session.sharing.end import SharedEnd
from seedrl.errors import ConfigError
from tests.learner.hosts.linked import linked
from tests.patience import wait_until


def why(ended: EndOfRun) -> str:
    return f"words for {ended.name}"


def hosts_of(peers: Peers) -> Hosts:
    return Hosts(peers, Agenda())


def test_alone_it_is_over_at_once() -> None:
    end = SharedEnd(alone())
    assert not end.is_over(None, why)
    assert end.is_over(EndOfRun.STOPPED, why)
    assert (end.outcome(), end.reason, end.can_save()) == (None, "", True)


def test_among_others_it_is_over_when_all_have_agreed() -> None:
    with linked(2) as (first, _):
        hosts = hosts_of(first)
        end = SharedEnd(hosts)
        assert not end.is_over(EndOfRun.ALL_STEPS, why)
        assert hosts.agenda.wants_end == "ALL_STEPS words for ALL_STEPS"
        assert not end.can_save()
        hosts.agenda.finish("CONFIRMED target 475 confirmed")
        assert end.is_over(None, why)
        assert end.outcome() is EndOfRun.CONFIRMED
        assert end.reason == "target 475 confirmed"
        assert end.can_save()


@pytest.mark.parametrize("ended", [EndOfRun.FAILED, EndOfRun.MISTAKE])
def test_what_ends_one_host_asks_nobody_and_saves_nothing(ended: EndOfRun) -> None:
    with linked(2) as (first, _):
        end = SharedEnd(hosts_of(first))
        assert end.is_over(ended, why)
        assert (end.outcome(), end.can_save()) == (None, False)


def test_a_host_that_leaves_ends_the_others() -> None:
    with linked(2) as (first, other):
        end = SharedEnd(hosts_of(first))
        other.leave("SIGTERM")
        while not first.left:
            pass
        assert end.is_over(None, why)
        assert end.outcome() is EndOfRun.STOPPED
        assert end.reason == "host 1 of 2 has ended: SIGTERM"
        assert not end.can_save()


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (ConfigError("agent.loss: expected a number"), "agent.loss: expected a number"),
        (ValueError("of two\nlines"), "ValueError: of two lines"),
        (None, "see its log"),
    ],
)
def test_a_host_that_ends_alone_says_why(failure: Exception | None, said: str) -> None:
    losses: list[str] = []
    with linked(2, losses) as (first, _):
        SharedEnd(hosts_of(first)).go_alone(failure)
        wait_until(lambda: losses, "that the other host hears of it")
    assert losses == [f"host 0 of 2 is lost: it has failed: {said}"]


def test_who_ends_because_another_host_has_left_is_not_lost_either() -> None:
    losses: list[str] = []
    with linked(3, losses) as (first, other, third):
        other.leave("SIGTERM")
        wait_until(lambda: first.left and third.left, "that it has left")
        end = SharedEnd(hosts_of(first))
        end.outcome()
        end.go_alone(None)
        wait_until(lambda: losses or 0 in third.left, "that the first one has left")
        assert third.left[0] == "host 1 of 3 has ended: SIGTERM"
    assert losses == []
