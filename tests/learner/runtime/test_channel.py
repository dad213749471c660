"""What a new channel holds, and what bounds it."""

from typing import Any

import numpy as np

from learner.runtime.channel import FilledPages, PageQueue, VersionedParams, open_channel
from learner.runtime.rate_limiter import RateLimiter
from seedrl.replay.rate_limiter import ratio_limiter


def _limiter() -> RateLimiter:
    return RateLimiter(
        ratio_limiter(replay_ratio=1.0, batch_steps=1, tolerance_updates=2.0, min_sequences=1)
    )


def test_the_first_parameters_are_the_newest_and_no_pages_wait() -> None:
    woken: list[str] = []
    channel = open_channel(
        _limiter(), [VersionedParams("params", 7)], wake_acting=lambda: woken.append("acting")
    )
    assert channel.params == [VersionedParams("params", 7)]
    assert channel.learned_version == 7
    assert len(channel.pages) == 0 and not channel.is_closed
    channel.wake_acting()
    assert woken == ["acting"]


def _pages(num_bytes: int) -> FilledPages:
    pages: Any = np.zeros(num_bytes, np.uint8)
    return FilledPages(pages, (3,), (0,), ended=(), versions=(0,))


def test_acting_waits_while_what_is_under_way_is_too_large() -> None:
    pages = PageQueue(most_bytes=100)
    sent = [_pages(60), _pages(40), _pages(1)]
    assert [pages.put(item, 0.0) for item in sent] == [True, True, False]
    assert pages.put(FilledPages((), (), (), ended=(3,), versions=()), 0.0)  # that has no bytes
    assert pages.get() is sent[0]
    assert pages.put(sent[2], 0.0)
    assert [len(item.streams) for _ in range(3) if (item := pages.get())] == [1, 0, 1]
    assert pages.get() is None


def test_pages_that_are_larger_than_the_bound_are_sent_alone() -> None:
    pages = PageQueue(most_bytes=100)
    assert pages.put(_pages(500), 0.0) and not pages.put(_pages(1), 0.0)
    assert pages.get() is not None
    assert pages.put(_pages(1), 0.0)
