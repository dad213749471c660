import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from learner.extras.watch import feed as feed_module
from learner.extras.watch.feed import Feed
from tests.learner.extras.watch.simulated_run import SimulatedRun
from tests.patience import SECONDS


@pytest.fixture(autouse=True)
def polls_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(feed_module, "SEARCH_SECONDS", 0.0)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, SECONDS))


async def until(messages: AsyncIterator[str], found: Callable[[dict[str, Any]], Any]) -> Any:
    async for text in messages:
        if result := found(json.loads(text)):
            return result
    raise AssertionError("the stream has ended")


def test_a_page_gets_all_first_and_then_what_is_new(tmp_path: Path) -> None:
    simulated = SimulatedRun(tmp_path / "a")
    simulated.advance(5)

    async def test() -> None:
        messages = Feed(tmp_path, "gone").messages()
        message = json.loads(await anext(messages))
        assert (message["names"], message["selected"]) == (["a"], "a")
        assert message["runs"]["a"]["curve"]["env_steps"] == [60_000]
        assert message["detail"]["reset"]
        simulated.advance(5)
        added = await until(messages, lambda found: found.get("detail", {}).get("columns"))
        assert added["env_steps"] == [120_000]
        SimulatedRun(tmp_path / "b").advance(5)
        curve = await until(messages, lambda found: found["runs"].get("b", {}).get("curve"))
        assert curve["env_steps"] == [60_000]

    run(test())


def test_a_run_that_was_removed_and_made_again_starts_anew_on_the_page(tmp_path: Path) -> None:
    SimulatedRun(tmp_path / "a").advance(5)

    async def test() -> None:
        messages = Feed(tmp_path, "a").messages()
        await anext(messages)
        shutil.rmtree(tmp_path / "a")
        await until(messages, lambda found: found.get("names") == [])
        SimulatedRun(tmp_path / "a").advance(5)
        detail = await until(messages, lambda found: found.get("detail"))
        # Else the page would append to what it has.
        assert detail["reset"] and detail["columns"]["env_steps"] == [60_000]

    run(test())
