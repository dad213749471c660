"""Queues from any thread to the coroutines of a loop, which is woken once for many, or for none."""

import asyncio
import collections
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Generic, NamedTuple, TypeVar

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


class _Write(NamedTuple):
    """A coroutine that has begun to write, and the future that it waits for."""

    coroutine: Coroutine[Any, Any, None]
    future: asyncio.Future[object]

    def finish(self) -> None:
        """Runs the rest of it, once the future is done. Raises RuntimeError if it waits again."""
        with contextlib.suppress(StopIteration):
            self.coroutine.send(None)
            raise RuntimeError("expected a write that waits for one future, got one for two")


class DirectOutbox(LoopOutbox[Item]):
    """A queue past which goes what nothing stands before: whoever puts it begins to write it.

    The loop, which would take two of its rounds and two turns at the interpreter for that, is not
    woken. What else is put waits for who gets it, as ever, and that is given nothing before what
    was begun is written.
    """

    def __init__(
        self,
        waker: LoopWaker,
        write: Callable[[Any], Coroutine[Any, Any, None]],
        is_direct: Callable[[Item], bool],
    ):
        """Args not named here are the waker's.

        Args:
          write: of an item that is direct; waits once at most, for a future of the loop, and may
            begin in any thread.
          is_direct: whether an item may go past the queue.
        """
        super().__init__(waker)
        self._write, self._is_direct = write, is_direct
        self._lock = threading.Lock()  # guards what follows, and taking from the queue
        self._under_way: _Write | None = None
        self._is_awaited = False  # whether a coroutine waits for an item, and so writes none

    def put(self, item: Item) -> None:
        """Begins to write `item`, or queues it; after the loop has ended it has no effect."""
        if not self._is_direct(item) or not self._begins(item):
            super().put(item)

    async def get(self) -> Item:
        """The next item that was queued, once there is one and what was begun is written.

        Raises what writing raises.
        """
        try:
            item = await self._next()
            if self._under_way is not None:
                # Not the future itself: it bears to be awaited once, and `write` has done so.
                await asyncio.wait([self._under_way.future])
        except asyncio.CancelledError:
            with self._lock:
                self._is_awaited = False
            if self._under_way is not None:
                self._under_way.future.cancel()  # nobody will ask what has become of it
            raise
        if self._under_way is not None:
            write, self._under_way = self._under_way, None
            write.finish()
        return item

    async def _next(self) -> Item:
        while True:
            self._has_items.clear()  # first, as in a `LoopOutbox`
            with self._lock:
                if self._items:
                    self._is_awaited = False
                    return self._items.popleft()
                # By the same look: what is queued after it, for which nobody takes the lock, wakes.
                self._is_awaited = True
            await self._has_items.wait()

    def _begins(self, item: Item) -> bool:
        """Begins to write `item` if nobody writes; whether it has."""
        with self._lock:
            if not self._is_awaited or self._items:
                return False
            try:
                if self._under_way is not None:
                    future = self._under_way.future
                    if not future.done() or future.cancelled() or future.exception():
                        return False
                    self._under_way.finish()
                self._under_way = None
                writing = self._write(item)
                with contextlib.suppress(StopIteration):  # it need not wait
                    self._under_way = _Write(writing, writing.send(None))
            except Exception:  # the same is raised for who gets it, and then tries to write it
                return False
            return True
