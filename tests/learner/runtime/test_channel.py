"""The channel: what bounds its pages, and the limiter that threads share."""

import threading
from typing import Any

import numpy as np

from learner.runtime.channel import FilledPages, PageQueue, RateLimiter
from seedrl.replay.rate_limiter import RatioLimiter
from tests.patience import SECONDS


def _pages(num_bytes: int) -> FilledPages:
    pages: Any = np.zeros(num_bytes, np.uint8)
    return FilledPages(pages, (3,), (0,), ended=(), versions=(0,))


def test_acting_waits_while_the_pages_under_way_are_too_large() -> None:
    pages = PageQueue(most_bytes=100)
    sent = [_pages(60), _pages(40), _pages(1)]
    assert [pages.put(item, 0.0) for item in sent] == [True, True, False]
    assert pages.put(FilledPages((), (), (), ended=(3,), versions=()), 0.0)  # that has no bytes
    assert pages.get() is sent[0]
    assert pages.put(sent[2], 0.0)
    assert [len(item.streams) for _ in range(3) if (item := pages.get())] == [1, 0, 1]
    assert pages.get() is None
    # What is larger than the bound is sent alone.
    assert pages.put(_pages(500), 0.0) and not pages.put(_pages(1), 0.0)


def test_closing_ends_the_wait_of_learning() -> None:
    limiter = RateLimiter(RatioLimiter(replay_ratio=1.0, batch_steps=10, tolerance_updates=2.0))
    assert limiter.holds([1]) and limiter.may_act()
    results: list[bool] = []
    thread = threading.Thread(
        target=lambda: results.append(limiter.wait_to_learn(SECONDS)), daemon=True
    )
    thread.start()
    limiter.close()
    thread.join(SECONDS)
    assert results == [False]
    assert not limiter.may_act()
