"""Snapshots: taken by the owner when it is at rest, once for each request."""

from learner.threads.snapshot_requests import Snapshots


def _counting() -> tuple[Snapshots[tuple[int, bool]], list[bool]]:
    taken: list[bool] = []

    def take(with_replay: bool) -> tuple[int, bool]:
        taken.append(with_replay)
        return len(taken), with_replay

    return Snapshots(take), taken


def test_nothing_is_copied_unless_it_is_asked_for() -> None:
    snapshots, taken = _counting()
    snapshots.answer()
    assert taken == []


def test_a_request_is_answered_once_when_the_owner_is_at_rest() -> None:
    snapshots, taken = _counting()
    answer = snapshots.request(with_replay=True)
    assert not answer.done()
    snapshots.answer()
    snapshots.answer()
    assert answer.result(timeout=0.0) == (1, True)
    assert taken == [True]


def test_an_answer_that_nobody_waits_for_is_not_that_of_the_next_request() -> None:
    snapshots, taken = _counting()
    abandoned = snapshots.request(with_replay=True)
    awaited = snapshots.request(with_replay=False)
    snapshots.answer()
    assert awaited.result(timeout=0.0) == (1, False)
    assert not abandoned.done()
    assert taken == [False]
