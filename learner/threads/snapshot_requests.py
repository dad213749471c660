"""Snapshots on request: one thread asks, and the thread that owns the state takes the copy."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class _Request(NamedTuple, Generic[T]):
    with_replay: bool
    answer: Future[T]


class Snapshots(Generic[T]):
    """Where snapshots are asked for, by one thread, and taken, by another that owns the state.

    Attributes:
      take: `with_replay -> snapshot`, for the owner's thread, or after that has ended.
      request_made: what was asked for; whoever owns the state calls `answer` if it is not None.
    """

    def __init__(self, take: Callable[[bool], T]):
        self.take = take
        self.request_made: _Request[T] | None = None  # rebinding needs no lock

    def request(self, *, with_replay: bool) -> Future[T]:
        """Asks for a copy of everything.

        Each request has a future of its own, so that an answer that nobody waits for any more is
        not taken for the next one's.
        """
        request = _Request[T](with_replay, Future())
        self.request_made = request
        return request.answer

    def answer(self) -> None:
        """Takes the snapshot that was asked for, if one was. Called by the owner, when at rest."""
        request, self.request_made = self.request_made, None
        if request is not None:
            request.answer.set_result(self.take(request.with_replay))
