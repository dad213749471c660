"""What an event loop has to send, put there by other threads."""

import asyncio
import collections
import contextlib
from typing import Generic, TypeVar

Item = TypeVar("Item")


class LoopOutbox(Generic[Item]):
    """A queue from any thread to a coroutine of `loop`."""

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self._loop = loop
        self._items: collections.deque[Item] = collections.deque()
        self._has_items = asyncio.Event()

    def put(self, item: Item) -> None:
        """Queues `item`; after the loop has ended it goes nowhere."""
        self._items.append(item)
        if self._has_items.is_set():
            return
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._has_items.set)

    async def get(self) -> Item:
        """The next item, once there is one."""
        while True:
            # In this order: whoever puts something after this look finds it cleared, and sets it.
            self._has_items.clear()
            if self._items:
                return self._items.popleft()
            await self._has_items.wait()
