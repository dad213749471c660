"""Requests: answered by the owner when it is at rest, once for each request."""

from concurrent.futures import Future
from typing import Any

from learner.runtime.channel import Requests


def _counting() -> tuple[Requests[bool, tuple[int, bool]], list[bool]]:
    taken: list[bool] = []

    def take(with_replay: bool) -> tuple[int, bool]:
        taken.append(with_replay)
        return len(taken), with_replay

    return Requests(take), taken


def test_nothing_is_copied_unless_it_is_asked_for() -> None:
    requests, taken = _counting()
    requests.answer()
    assert taken == []


def test_a_request_is_answered_once_when_the_owner_is_at_rest() -> None:
    requests, taken = _counting()
    answer = requests.request(True)
    assert not answer.done()
    requests.answer()
    requests.answer()
    assert answer.result(timeout=0.0) == (1, True)
    assert taken == [True]


def test_a_request_made_while_the_owner_looks_for_one_is_not_lost() -> None:
    made: list[Future[bool]] = []

    class Asked(Requests[bool, bool]):
        """Somebody asks right after the owner has read that nothing was asked for."""

        def __getattribute__(self, name: str) -> Any:
            found = super().__getattribute__(name)
            if name == "request_made" and not made:
                made.append(self.request(True))
            return found

    requests = Asked(lambda argument: argument)
    requests.answer()
    requests.answer()
    assert made[0].result(timeout=0.0)


def test_an_answer_that_nobody_waits_for_is_not_that_of_the_next_request() -> None:
    requests, taken = _counting()
    abandoned = requests.request(True)
    awaited = requests.request(False)
    requests.answer()
    assert awaited.result(timeout=0.0) == (1, False)
    assert not abandoned.done()
    assert taken == [False]
