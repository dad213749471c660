"""What threads put for an event loop arrives there, all of it and in order."""

import asyncio
import collections
import threading

import pytest

from learner.threads.loop_outbox import DirectOutbox, LoopOutbox, LoopWaker
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


class Writer:
    """What a `DirectOutbox` writes by: each item as soon as `let_through` says so, or `fails`."""

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self.loop = loop
        self.begun: list[tuple[str, str]] = []
        self.written: list[str] = []
        self.waiting: list[asyncio.Future[None]] = []
        self.is_open = True
        self.most_at_once = 0
        self.outbox = DirectOutbox[str](LoopWaker(loop), self.write, lambda item: item != "end")

    async def write(self, item: str) -> None:
        self.begun.append((item, threading.current_thread().name))
        self.most_at_once = max(self.most_at_once, len(self.begun) - len(self.written))
        future = self.loop.create_future()
        self.waiting.append(future)
        if self.is_open:
            future.set_result(None)
        await future
        self.written.append(item)

    async def send(self) -> None:
        """As a connection's coroutine does."""
        while (item := await self.outbox.get()) != "end":
            await self.write(item)

    async def let_through(self) -> None:
        """Ends writes, one after another, some time after they have begun."""
        while True:
            await asyncio.sleep(0)
            if self.waiting and not self.waiting[-1].done():
                self.waiting[-1].set_result(None)

    async def put_elsewhere(self, *items: str) -> None:
        """Puts them in another thread, to its end."""

        def put() -> None:
            for item in items:
                self.outbox.put(item)

        thread = threading.Thread(target=put, name="elsewhere")
        thread.start()
        while thread.is_alive():
            await asyncio.sleep(0.001)


def test_what_nothing_stands_before_is_written_by_the_thread_that_puts_it() -> None:
    async def run() -> None:
        writer = Writer(asyncio.get_running_loop())
        sending = asyncio.create_task(writer.send())
        await asyncio.sleep(0)  # it waits
        await writer.put_elsewhere("a", "b")
        writer.is_open = False
        await writer.put_elsewhere("c", "d")  # behind c, which stays under way
        await asyncio.sleep(0)
        assert [writer.begun, writer.written] == [
            [(item, "elsewhere") for item in "abc"],
            ["a", "b"],
        ]
        writer.waiting[-1].set_result(None)
        while writer.begun[-1][0] != "d":
            await asyncio.sleep(0)
        await writer.put_elsewhere("e", "end")  # behind d, which the loop writes
        assert writer.begun[3:] == [("d", "MainThread")]
        writer.is_open = True
        writer.waiting[-1].set_result(None)
        await asyncio.wait_for(sending, SECONDS)
        assert writer.begun[4:] == [("e", "MainThread")]
        assert writer.written == ["a", "b", "c", "d", "e"]

    asyncio.run(run())


def test_writes_of_many_threads_are_never_two_at_once_and_none_is_lost() -> None:
    async def run() -> None:
        writer = Writer(asyncio.get_running_loop())
        writer.is_open = False
        opening = asyncio.create_task(writer.let_through())
        sending = asyncio.create_task(writer.send())
        items = [[f"{thread} {number}" for number in range(500)] for thread in range(3)]
        await asyncio.gather(*(writer.put_elsewhere(*each) for each in items))
        writer.outbox.put("end")
        await asyncio.wait_for(sending, SECONDS)
        opening.cancel()
        assert writer.most_at_once == 1
        for thread, each in enumerate(items):
            assert [item for item in writer.written if item[0] == str(thread)] == each

    asyncio.run(run())


def test_a_write_that_fails_is_heard_of_by_who_gets_the_next_item() -> None:
    async def run() -> None:
        writer = Writer(asyncio.get_running_loop())
        writer.is_open = False
        sending = asyncio.create_task(writer.send())
        await asyncio.sleep(0)
        await writer.put_elsewhere("a")
        writer.waiting[-1].set_exception(ValueError("broken"))
        await writer.put_elsewhere("b")
        with pytest.raises(ValueError, match="broken"):
            await asyncio.wait_for(sending, SECONDS)
        assert writer.written == []

    asyncio.run(run())


def test_who_is_cancelled_leaves_no_write_under_way() -> None:
    async def run() -> None:
        writer = Writer(asyncio.get_running_loop())
        writer.is_open = False
        sending = asyncio.create_task(writer.send())
        await asyncio.sleep(0)
        await writer.put_elsewhere("a")
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        assert writer.waiting[-1].cancelled()

    asyncio.run(run())


def test_what_is_queued_while_the_loop_looks_leaves_nobody_thinking_that_it_waits() -> None:
    class QueuedWhileLooking(collections.deque[str]):
        """Another thread queues something right after the first look, which found nothing."""

        has_looked = False

        def __bool__(self) -> bool:
            found = len(self) > 0
            if not self.has_looked:
                self.has_looked = True
                writer.outbox.put("end")
            return found

    async def run() -> None:
        nonlocal writer
        writer = Writer(asyncio.get_running_loop())
        writer.outbox._items = QueuedWhileLooking()
        assert await asyncio.wait_for(writer.outbox.get(), SECONDS) == "end"
        writer.outbox.put("a")  # while whoever got that writes it
        assert writer.begun == []

    writer: Writer
    asyncio.run(run())


def test_a_write_that_waits_for_more_than_one_future_is_an_error() -> None:
    async def run() -> None:
        first, second = (asyncio.get_running_loop().create_future() for _ in range(2))

        async def write(item: str) -> None:
            await first
            await second

        loop = asyncio.get_running_loop()
        outbox = DirectOutbox[str](LoopWaker(loop), write, lambda item: item != "end")
        getting = asyncio.create_task(outbox.get())
        await asyncio.sleep(0)  # it waits
        outbox.put("a")
        first.set_result(None)
        outbox.put("end")
        with pytest.raises(RuntimeError, match="a write that waits for one future, got one for tw"):
            await asyncio.wait_for(getting, SECONDS)

    asyncio.run(run())
