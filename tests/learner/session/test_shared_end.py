"""The end of a run on several hosts."""

import pytest

from learner.multihost.agreement import Agenda, Hosts, alone
from learner.multihost.peers import Peers
from learner.session.end_of_run import EndOfRun
from learner.session.shared_end import SharedEnd
from seedrl.errors import ConfigError
from tests.learner.multihost.linked import linked
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
        hosts.agenda.end = "CONFIRMED target 475 confirmed"
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
    assert losses == [f"host 0 of 2 is lost: {said}"]
