"""What a new exchange holds, and what bounds it."""

import queue

import pytest

from learner.threads.exchange import FilledPages, FrozenParams, open_exchange
from learner.threads.rate_limiter import RateLimiter
from seedrl.replay.limiter import ratio_limiter


def _limiter() -> RateLimiter:
    return RateLimiter(
        ratio_limiter(replay_ratio=1.0, batch_steps=1, tolerance_updates=2.0, min_sequences=1)
    )


def test_the_first_parameters_are_the_newest_and_no_pages_wait() -> None:
    woken: list[str] = []
    exchange = open_exchange(
        _limiter(), [FrozenParams("params", 7)], wake_acting=lambda: woken.append("acting")
    )
    assert exchange.params == [FrozenParams("params", 7)]
    assert exchange.learned_version == 7
    assert exchange.pages.empty() and not exchange.is_closed
    exchange.wake_acting()
    assert woken == ["acting"]


def test_acting_waits_once_as_many_items_are_under_way_as_fit() -> None:
    exchange = open_exchange(
        _limiter(), [FrozenParams("params", 0)], wake_acting=lambda: None, capacity=2
    )
    item = FilledPages((), (), (), ended=(3,), versions=())
    for _ in range(2):
        exchange.pages.put_nowait(item)
    with pytest.raises(queue.Full):
        exchange.pages.put_nowait(item)
    assert exchange.pages.get_nowait() == item
    exchange.pages.put_nowait(item)
