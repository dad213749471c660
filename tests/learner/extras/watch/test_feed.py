import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from learner.extras.watch import feed as feed_module
from learner.extras.watch.feed import Feed
from tests.learner.extras.watch.simulated_run import SimulatedRun
from tests.patience import SECONDS

Test = Callable[[Path], Coroutine[Any, Any, None]]


@pytest.fixture(autouse=True)
def polls_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "POLL_SECONDS", 0.001)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, SECONDS))


async def until(messages: AsyncIterator[str], found: Callable[[dict[str, Any]], Any]) -> Any:
    async for text in messages:
        message = json.loads(text)
        if result := found(message):
            return result
    raise AssertionError("the stream has ended")


async def first(messages: AsyncIterator[str]) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(await anext(messages))
    return message


def test_a_page_gets_all_first_and_then_what_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "SEARCH_SECONDS", 0.0)
    simulated = SimulatedRun(tmp_path / "a")
    simulated.advance(5)

    async def test() -> None:
        feed = Feed(tmp_path)
        messages = feed.messages(None)
        message = await first(messages)
        assert (message["names"], message["selected"]) == (["a"], "a")
        assert message["runs"]["a"]["curve"]["env_steps"] == [60_000]
        assert message["detail"]["reset"]
        simulated.advance(5)
        added = await until(messages, lambda found: found.get("detail", {}).get("columns"))
        assert added["env_steps"] == [120_000]
        SimulatedRun(tmp_path / "b").advance(5)
        assert await until(messages, lambda found: found.get("names")) in (["a"], ["a", "b"])
        assert feed._polling is not None
        await messages.aclose()
        assert feed._polling is None  # nothing is read while no page is open

    run(test())


def test_a_page_that_does_not_keep_up_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "MOST_WAITING", 2)
    simulated = SimulatedRun(tmp_path / "a")

    async def test() -> None:
        feed = Feed(tmp_path)
        messages = feed.messages(None)
        await first(messages)
        for _ in range(3):
            simulated.say("hung", "again")
            await feed.look()
        with pytest.raises(StopAsyncIteration):
            await anext(messages)

    run(test())


def test_a_slow_disk_blocks_no_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    SimulatedRun(tmp_path / "a")
    is_reading, may_end = threading.Event(), threading.Event()
    read = Feed._read

    def slow(self: Feed, *arguments: Any) -> Any:
        is_reading.set()
        assert may_end.wait(SECONDS)
        return read(self, *arguments)

    async def test() -> None:
        monkeypatch.setattr(Feed, "_read", slow)
        page = asyncio.create_task(first(Feed(tmp_path).messages(None)))
        while not is_reading.is_set():
            await asyncio.sleep(0.001)  # the event loop answers
        may_end.set()
        assert (await page)["names"] == ["a"]

    run(test())
