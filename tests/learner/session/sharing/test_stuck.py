"""Work that never ends, on hosts that are threads: who is to blame, and from when on."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from learner.hosts.agenda import Agenda, Hosts
from learner.hosts.agreed_limiter import AgreedLimiter
from learner.hosts.peers import Peers
from learner.session.sharing import stuck
from learner.session.sharing.stuck import end_if_stuck
from learner.threads.worker import Worker
from seedrl.exit_codes import ExitCode
from seedrl.replay.limiter import ratio_limiter
from tests.learner.hosts.linked import linked
from tests.patience import wait_until


class EndedError(Exception):
    """The process would be gone."""


class Voting:
    """A session of one thread, which votes; its clock is `seconds`."""

    def __init__(self, peers: Peers) -> None:
        self.hosts, self.seconds = Hosts(peers, Agenda()), 0.0
        limiter = ratio_limiter(replay_ratio=1.0, batch_steps=1, tolerance_updates=1.0)
        vote = AgreedLimiter(limiter, *self.hosts).abstain
        self._worker = Worker("learning", vote, threading.Event())
        self._worker.start()
        wait_until(lambda: peers.waited_for("learning"), "that it waits for a vote")

    def stuck(self, seconds: float) -> list[str]:
        at_work = self._worker.seconds_at_work(self.seconds)
        return ["learning"] if at_work > seconds else []


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
        session: Any = Voting(peers[index])
        for session.seconds in (0.0, 60.1, 60.0 + grace_seconds):
            end_if_stuck(session, 60.0)
        session.seconds += 0.1
        text = f"host {1 - index} of 2 did not answer for {60 + grace_seconds:.0f} s"
        with pytest.raises(EndedError, match=text):
            end_if_stuck(session, 60.0)
        wait_until(lambda: losses, "that the others hear of it")
    assert losses == [f"host {index} of 2 is lost: it has failed: {text}"]


def test_a_thread_that_waits_for_nobody_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def end(text: str, code: ExitCode) -> None:
        raise EndedError(text, code)

    monkeypatch.setattr(stuck, "exit_hung", end)
    with linked(2) as peers:
        session: Any = SimpleNamespace(
            hosts=Hosts(peers[0], Agenda()), stuck=lambda seconds: ["acting"]
        )
        with pytest.raises(EndedError) as caught:
            end_if_stuck(session, 60.0)
    text = "acting finished nothing for 60 seconds (logging.stuck_seconds)"
    assert caught.value.args == (text, ExitCode.STUCK)
