"""Requests: one thread asks, and the thread that owns the state answers when it is at rest."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, NamedTuple, TypeVar

A = TypeVar("A")
T = TypeVar("T")


class _Request(NamedTuple, Generic[A, T]):
    argument: A
    answer: Future[T]


class Requests(Generic[A, T]):
    """Where something is asked for, by one thread, and taken, by another that owns the state.

    Attributes:
      take: `argument -> answer`, for the owner's thread, or after that has ended.
      request_made: what was asked for; whoever owns the state calls `answer` if it is not None.
    """

    def __init__(self, take: Callable[[A], T]):
        self.take = take
        self.request_made: _Request[A, T] | None = None  # rebinding needs no lock

    def request(self, argument: A) -> Future[T]:
        """Asks for an answer.

        Each request has a future of its own, so that an answer that nobody waits for any more is
        not taken for the next one's.
        """
        request = _Request[A, T](argument, Future())
        self.request_made = request
        return request.answer

    def answer(self) -> None:
        """Takes what was asked for, if something was. Called by the owner, when at rest."""
        # Looked at before it is cleared: a first request that is made in between is not lost.
        if (request := self.request_made) is None:
            return
        self.request_made = None
        request.answer.set_result(self.take(request.argument))
