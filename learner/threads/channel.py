"""How threads exchange values: a bounded channel."""

import threading
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class ClosedError(Exception):
    """The other side has closed."""


class Channel(Generic[T]):
    """A bounded first-in-first-out queue between one sending and one receiving thread."""

    def __init__(self, capacity: int):
        self._capacity = capacity
        self._items: deque[T] = deque()
        self._changed = threading.Condition()
        self._closed = False

    def put(self, item: T, timeout: float) -> bool:
        """Waits for room; False if there was none in time. Raises ClosedError after `close`."""
        with self._changed:
            room = self._changed.wait_for(
                lambda: self._closed or len(self._items) < self._capacity, timeout
            )
            if self._closed:
                raise ClosedError
            if room:
                self._items.append(item)
                self._changed.notify_all()
            return room

    def take_all(self, timeout: float) -> list[T]:
        """Everything that waits, in order; waits for a first item; else empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._items, timeout)
            items = list(self._items)
            self._items.clear()
            self._changed.notify_all()
            return items

    def take(self, timeout: float) -> list[T]:
        """The first item that waits, waiting for it; empty if none arrived in time."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._items, timeout)
            items = [self._items.popleft()] if self._items else []
            self._changed.notify_all()
            return items

    def __len__(self) -> int:
        """Items that wait now."""
        with self._changed:
            return len(self._items)

    def close(self) -> None:
        """Wakes both sides; what is queued can still be taken."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
