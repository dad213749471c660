"""What threads put for an event loop arrives there, all of it and in order."""

import asyncio
import threading

import pytest

from learner.threads.loop_outbox import LoopOutbox, LoopWaker
from tests.patience import SECONDS


def test_nothing_is_lost_between_threads_and_loop() -> None:
    num_threads, num_items = 4, 5_000

    async def collect() -> list[tuple[int, int]]:
        outbox: LoopOutbox[tuple[int, int]] = LoopOutbox(LoopWaker(asyncio.get_running_loop()))

        def put(thread: int) -> None:
            for number in range(num_items):
                outbox.put((thread, number))

        threads = [threading.Thread(target=put, args=(index,)) for index in range(num_threads)]
        for thread in threads:
            thread.start()
        return [await outbox.get() for _ in range(num_threads * num_items)]

    async def collect_in_time() -> list[tuple[int, int]]:
        return await asyncio.wait_for(collect(), SECONDS)

    arrived = asyncio.run(collect_in_time())
    for index in range(num_threads):
        assert [number for thread, number in arrived if thread == index] == list(range(num_items))


def test_a_waiting_loop_is_woken_for_each_item() -> None:
    async def take_two() -> list[str]:
        outbox: LoopOutbox[str] = LoopOutbox(LoopWaker(asyncio.get_running_loop()))
        threading.Timer(0.05, outbox.put, ["one"]).start()
        first = await asyncio.wait_for(outbox.get(), SECONDS)
        threading.Timer(0.05, outbox.put, ["two"]).start()
        return [first, await asyncio.wait_for(outbox.get(), SECONDS)]

    assert asyncio.run(take_two()) == ["one", "two"]


def test_what_is_put_while_the_loop_falls_asleep_wakes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class PutWhileClearing(asyncio.Event):
        """Another thread puts something just before the loop declares that there is nothing."""

        def clear(self) -> None:
            if self.is_set():
                outbox.put("raced")
            super().clear()

    async def take_two() -> list[str]:
        nonlocal outbox
        outbox = LoopOutbox(LoopWaker(asyncio.get_running_loop()))
        outbox.put("first")
        await asyncio.sleep(0)  # the loop has heard of it
        return [await asyncio.wait_for(outbox.get(), SECONDS) for _ in range(2)]

    outbox: LoopOutbox[str]
    monkeypatch.setattr(asyncio, "Event", PutWhileClearing)
    assert asyncio.run(take_two()) == ["first", "raced"]


def test_after_the_end_of_the_loop_items_have_no_effect() -> None:
    loop = asyncio.new_event_loop()
    outbox: LoopOutbox[str] = LoopOutbox(LoopWaker(loop))
    loop.close()
    outbox.put("late")


def test_a_loop_is_called_once_for_all_that_is_put_until_it_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def take() -> list[str]:
        loop = asyncio.get_running_loop()
        waker, calls = LoopWaker(loop), list[object]()
        outboxes: list[LoopOutbox[str]] = [LoopOutbox(waker) for _ in range(3)]
        getting = [asyncio.create_task(outbox.get()) for outbox in outboxes]
        await asyncio.sleep(0)  # all of them wait
        call = loop.call_soon_threadsafe
        monkeypatch.setattr(
            loop, "call_soon_threadsafe", lambda work: (calls.append(work), call(work))
        )
        for name, outbox in zip("abc", outboxes, strict=True):
            outbox.put(name)
        found = await asyncio.wait_for(asyncio.gather(*getting), SECONDS)
        outboxes[0].put("later")
        found.append(await asyncio.wait_for(outboxes[0].get(), SECONDS))
        assert len(calls) == 2
        return found

    assert asyncio.run(take()) == ["a", "b", "c", "later"]
