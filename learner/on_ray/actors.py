"""The actors of a run: placed, called, heard, and ended."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from learner.on_ray.cluster import Cluster, LostError, Place, UnansweredError
from learner.on_ray.nodes import Demand, Node

_UNANSWERED_SECONDS = 1.0
_END_SECONDS = 15.0


@dataclass(eq=False)
class Member:
    """A process of the run, wherever it is.

    Attributes:
      name: for messages.
      actor: that has it; None if nobody has.
      node: where it is, or is to be while `place` is None; "" for anywhere.
      place: where it is; None while it is being placed.
      number: counts its starts.
      state: of the process.
      ended: with what an env server has died, which the next one is told; None if it has not.
    """

    name: str
    actor: Any = None
    node: str = ""
    place: Place | None = None
    number: int = 0
    state: Literal["idle", "starting", "running"] = "idle"
    ended: int | None = None


Then = Callable[[Member, Any], None]


class _Call(NamedTuple):
    """One that is not answered: of a member's actor, which may have another by now."""

    member: Member
    actor: Any
    then: Then
    method: str
    words: tuple[object, ...]


class Actors:
    """Owns the actors of a run and the calls that they have not answered; used by one thread.

    A call's answer goes to its `then`, unless the actor was lost meanwhile: then `on_lost` is
    called, once, with the reason.
    """

    def __init__(
        self,
        cluster: Cluster,
        on_lost: Callable[[Member, str], None],
        clock: Callable[[], float],
    ) -> None:
        self._cluster, self._on_lost, self._clock = cluster, on_lost, clock
        self._members: list[Member] = []  # that have an actor
        self._pending: dict[Any, _Call] = {}
        self._timers: list[tuple[float, Callable[[], None]]] = []

    def nodes(self) -> list[Node]:
        """Those that are alive."""
        return self._cluster.nodes()

    def place(self, member: Member, demand: Demand, node: Node | None, then: Then) -> Any:
        """Makes the member's actor; `then` gets its Place, which is set in the member by then."""

        def placed(member: Member, place: Place) -> None:
            member.place, member.node = place, place.node
            then(member, place)

        member.node = "" if node is None else node.id
        member.actor = self._cluster.place(demand, node)
        self._members.append(member)
        self.call(member, placed, "place")
        return member.actor

    def call(self, member: Member, then: Then, method: str, *words: object) -> None:
        """Calls a method of the member's actor."""
        answer = self._cluster.call(member.actor, method, *words)
        self._pending[answer] = _Call(member, member.actor, then, method, words)

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Does something in a later turn."""
        self._timers.append((self._clock() + seconds, action))

    def turn(self, seconds: float) -> None:
        """Waits so long at most for an answer; hears what has come, and does what is due."""
        for answer in self._cluster.ready(list(self._pending), seconds):
            call = self._pending.pop(answer)
            if call.actor is call.member.actor:
                self._hear(call, answer)
        now = self._clock()
        due = [action for at, action in self._timers if at <= now]
        self._timers = [timer for timer in self._timers if timer[0] > now]
        for action in due:
            action()

    def end(self, grace_seconds: Callable[[Member], float]) -> None:
        """Ends all processes, by force after the seconds of each, and all actors."""
        members, self._pending = list(self._members), {}
        for member in members:
            if member.place is not None:
                self.call(member, lambda member, _: None, "end", grace_seconds(member))
        deadline = time.monotonic() + _END_SECONDS
        while self._pending and (left := deadline - time.monotonic()) > 0:
            for answer in self._cluster.ready(list(self._pending), left):
                del self._pending[answer]
        self._remove(members)

    def _hear(self, call: _Call, answer: Any) -> None:
        try:
            found = self._cluster.answer(answer)
        except UnansweredError:
            self.later(_UNANSWERED_SECONDS, lambda: self._call_again(call))
        except LostError as error:
            self._remove([call.member])
            self._on_lost(call.member, str(error))
        else:
            call.then(call.member, found)

    def _call_again(self, call: _Call) -> None:
        if call.actor is call.member.actor:
            self.call(call.member, call.then, call.method, *call.words)

    def _remove(self, members: Iterable[Member]) -> None:
        for member in members:
            self._cluster.remove(member.actor)
            self._members.remove(member)
            member.actor, member.node, member.state = None, "", "idle"
