"""What a host's main thread wants of the run, and what all hosts have agreed on."""

import contextlib
import queue
from collections.abc import Callable
from typing import Any, NamedTuple

from learner.hosts.peers import Peers


class Agenda:
    """Between the main thread, which wants, and the learning thread, which votes.

    Attributes:
      wants_save, wants_end: set by the main thread; see `Vote`.
      end: why the run is over for all hosts, once that is agreed; empty before.
      snapshots: taken by the learning thread where all agreed to save, for the main thread.
      take: gives a snapshot of the learning thread's state; set when the session is built.
    """

    def __init__(self) -> None:
        self.wants_save = False
        self.wants_end = ""
        self.end = ""
        self.snapshots: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.take: Callable[[], Any] = lambda: None

    def taken(self) -> Any:
        """A snapshot that was taken, for the main thread; None if there is no other."""
        with contextlib.suppress(queue.Empty):
            return self.snapshots.get_nowait()
        return None

    def save(self) -> None:
        """For the learning thread, between two updates, at the same update on all hosts."""
        self.wants_save = False
        self.snapshots.put(self.take())

    def finish(self, reason: str) -> None:
        """No host learns any more."""
        self.end = reason


class Hosts(NamedTuple):
    """What a session knows of the hosts that share its run, itself one of them."""

    peers: Peers
    agenda: Agenda

    @property
    def is_alone(self) -> bool:
        """Whether there is no other."""
        return self.peers.place.num_hosts == 1


def alone() -> Hosts:
    """One host without others."""
    return Hosts(Peers(), Agenda())
