"""What the hub and an env server's connection know of each other."""

from typing import NamedTuple, Protocol

from learner.serving.leases import Lease
from learner.serving.reconciliation import SentSteps
from learner.serving.verdict import EndError


class HubConnection(Protocol):
    """What the hub knows of an env server's connection."""

    def send_actions(self, payload: bytes, /) -> None:
        """Sends actions; called by the acting thread."""
        ...

    def end(self, error: EndError | None, /) -> None:
        """Ends with that status, or quietly; the first end counts.

        Called under the hub's lock: it neither waits nor calls the hub.
        """
        ...


class Offer(NamedTuple):
    """What an env server says of itself.

    Attributes:
      peer: its name in messages.
      num_envs, num_groups: what it offers to step, and in how many groups.
      plays_recording: whether its steps come from a recording.
      sent: its report of leases that are over for it.
    """

    peer: str
    num_envs: int
    num_groups: int
    plays_recording: bool = False
    sent: tuple[SentSteps, ...] = ()


class Admission(NamedTuple):
    """An env server's lease, and the seeds of its environments: a list for each group."""

    lease: Lease
    seeds: list[list[int]]
