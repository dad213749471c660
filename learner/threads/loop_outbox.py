"""Queues from any thread to the coroutines of a loop, which is woken once for many of them."""

import asyncio
import collections
import contextlib
from typing import Generic, TypeVar

Item = TypeVar("Item")


class LoopWaker:
    """Wakes the coroutines of `loop` that something was put for; may be called from any thread.

    To wake the loop is a system call, after which two threads want the interpreter: what is put
    until the loop runs needs no other.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self._loop = loop
        self._due: collections.deque[asyncio.Event] = collections.deque()
        self._is_called = False

    def wake(self, event: asyncio.Event) -> None:
        """Has the loop set `event`; after the loop has ended it has no effect."""
        self._due.append(event)
        if self._is_called:
            return
        self._is_called = True
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._set_due)

    def _set_due(self) -> None:
        # In this order: whoever adds an event after the last look finds that nobody was called.
        self._is_called = False
        while self._due:
            self._due.popleft().set()


class LoopOutbox(Generic[Item]):
    """A queue from any thread to a coroutine of the waker's loop."""

    def __init__(self, waker: LoopWaker):
        self._waker = waker
        self._items: collections.deque[Item] = collections.deque()
        self._has_items = asyncio.Event()

    def put(self, item: Item) -> None:
        """Queues `item`; after the loop has ended it has no effect."""
        self._items.append(item)
        if not self._has_items.is_set():
            self._waker.wake(self._has_items)

    def qsize(self) -> int:
        """How many were put and not got yet."""
        return len(self._items)

    async def get(self) -> Item:
        """The next item, once there is one."""
        while True:
            # In this order: whoever puts something after this look finds it cleared, and sets it.
            self._has_items.clear()
            if self._items:
                return self._items.popleft()
            await self._has_items.wait()
