"""What the hub and an env server's connection know of each other."""

from typing import NamedTuple, Protocol, cast

import grpc

from learner.serving.leases import Lease
from learner.serving.reconciliation import SentSteps


class EndError(Exception):
    """Ends one connection with a status that its env server understands; the text is one line.

    `is_reported`: the learner's user hears of it in another way, or need not.
    """

    def __init__(self, code: grpc.StatusCode, details: str, *, is_reported: bool = False):
        super().__init__(details)
        self.code = code
        self.details = details
        self.is_reported = is_reported


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


def connection_of(lease: Lease) -> HubConnection:
    """The connection that holds a lease, which only the hub gives out."""
    return cast(HubConnection, lease.holder)
