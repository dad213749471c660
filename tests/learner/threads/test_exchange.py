"""What a new exchange holds, and what bounds it."""

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
        _limiter(), FrozenParams("params", 7), wake_acting=lambda: woken.append("acting")
    )
    assert exchange.params == FrozenParams("params", 7)
    assert exchange.learned_version == 7
    assert exchange.pages.take_all(timeout=0.0) == []
    exchange.wake_acting()
    assert woken == ["acting"]


def test_acting_waits_once_as_many_items_are_under_way_as_fit() -> None:
    exchange = open_exchange(
        _limiter(), FrozenParams("params", 0), wake_acting=lambda: None, capacity=2
    )
    item = FilledPages((), (), (), ended=(3,))
    assert [exchange.pages.put(item, timeout=0.0) for _ in range(3)] == [True, True, False]
    assert exchange.pages.take_all(timeout=0.0) == [item, item]
    assert exchange.pages.put(item, timeout=0.0)
