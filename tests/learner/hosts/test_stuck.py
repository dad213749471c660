"""Work that never ends, on hosts that are threads: who is to blame, and from when on."""

import threading
from typing import Any

import pytest

from learner.hosts import stuck
from learner.hosts.agenda import Agenda
from learner.hosts.agreed_limiter import AgreedLimiter
from learner.hosts.peers import Peers
from learner.hosts.stuck import end_if_stuck
from learner.threads.worker import Worker
from seedrl.exit_codes import ExitCode
from seedrl.replay.rate_limiter import ratio_limiter
from tests.learner.hosts.linked import linked
from tests.patience import wait_until


class EndedError(Exception):
    """The process would be gone."""


class Late:
    """A watchdog that finds one thread at a piece of work that has taken `seconds`."""

    def __init__(self, name: str, seconds: float = 60.1) -> None:
        self.name, self.seconds = name, seconds

    def late(self, seconds: float) -> list[str]:
        return [self.name] if self.seconds > seconds else []


def _voting(peers: Peers) -> None:
    """A thread called `learning` votes, and waits for the others to."""
    limiter = ratio_limiter(replay_ratio=1.0, batch_steps=1, tolerance_updates=1.0)
    Worker("learning", AgreedLimiter(limiter, peers, Agenda()).abstain, threading.Event()).start()
    wait_until(lambda: peers.waited_for("learning"), "that it waits for a vote")


@pytest.mark.parametrize(("index", "grace_seconds"), [(0, 30.0), (1, 60.0)])
def test_whoever_waits_for_a_vote_is_not_stuck_and_names_who_does_not_vote(
    monkeypatch: pytest.MonkeyPatch, index: int, grace_seconds: float
) -> None:
    def end(line: str) -> None:
        raise EndedError(line)

    monkeypatch.setattr(stuck, "exit_hung", lambda text, code: pytest.fail(text))
    monkeypatch.setattr(stuck, "exit_lost", end)
    losses: list[str] = []
    with linked(2, losses) as peers:
        _voting(peers[index])
        late: Any = Late("learning")
        for late.seconds in (0.0, 60.1, 60.0 + grace_seconds):
            end_if_stuck(peers[index], 60.0, late)
        late.seconds += 0.1
        text = f"host {1 - index} of 2 did not answer for {60 + grace_seconds:.0f} s"
        with pytest.raises(EndedError, match=text):
            end_if_stuck(peers[index], 60.0, late)
        wait_until(lambda: losses, "that the others hear of it")
    assert losses == [f"host {index} of 2 is lost: it has failed: {text}"]


def test_a_thread_that_waits_for_nobody_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def end(text: str, code: ExitCode) -> None:
        raise EndedError(text, code)

    monkeypatch.setattr(stuck, "exit_hung", end)
    with linked(2) as peers:
        late: Any = Late("acting")
        with pytest.raises(EndedError) as caught:
            end_if_stuck(peers[0], 60.0, late)
    text = "acting finished nothing for 60 seconds (logging.stuck_seconds)"
    assert caught.value.args == (text, ExitCode.TEMPORARY)
