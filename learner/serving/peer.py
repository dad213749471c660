"""What the hub and an env server's connection know of each other."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import grpc

from learner.report.env_servers import Turn
from learner.report.status import EnvServerStatus
from learner.serving.leases import Lease, Role
from learner.serving.ledger import SentSteps
from seedrl.wire.printable import LONGEST_FROM_LEARNER, printable

_REFUSALS = (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.INVALID_ARGUMENT)


class EndError(Exception):
    """Ends one connection with a status that its env server understands; the text is one line.

    `is_reported`: the learner's user hears of it in another way, or need not.
    """

    def __init__(self, code: grpc.StatusCode, details: str, *, is_reported: bool = False):
        super().__init__(details)
        self.code = code
        self.details = details
        self.is_reported = is_reported

    @property
    def is_refusal(self) -> bool:
        """Whether the env server will not return."""
        return self.code in _REFUSALS


def unavailable(why: str) -> EndError:
    """Ends a connection whose env server shall return; of that the user hears otherwise."""
    return EndError(grpc.StatusCode.UNAVAILABLE, why, is_reported=True)


def refusal(why: str) -> EndError:
    """Ends a connection whose env server shall not return; printed there as one line."""
    return EndError(grpc.StatusCode.FAILED_PRECONDITION, printable(why, LONGEST_FROM_LEARNER))


class HubConnection(Protocol):
    """What the hub knows of an env server's connection."""

    def send_actions(self, payloads: Sequence[bytes], /) -> None:
        """Sends the actions of one or several groups; called by the acting thread."""
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
      earlier: the keys of these.
      quarantined, quarantine: environments that it does not offer, and why the newest of them.
    """

    peer: str
    num_envs: int
    num_groups: int
    plays_recording: bool = False
    sent: tuple[SentSteps, ...] = ()
    earlier: frozenset[int] = frozenset()
    quarantined: int = 0
    quarantine: str = ""


class Admission(NamedTuple):
    """An env server's lease, and the seeds of its environments: a list for each group."""

    lease: Lease
    seeds: list[list[int]]


def status_of(lease: Lease, offer: Offer, now: float) -> EnvServerStatus:
    """What is reported of an env server that has got `lease`."""
    sizes = Counter[Role]()
    for group in lease.groups:
        sizes[group.role] += len(group.slots)
    return EnvServerStatus(
        name=offer.peer,
        host=offer.peer.rpartition(":")[0],
        state="building",
        since_seconds=now,
        groups=len(lease.groups),
        environments=sizes.total(),
        training_slots=sizes["training"],
        evaluation_slots=sizes["evaluation"],
        quarantined=offer.quarantined,
    )


def turns_of(lease: Lease) -> list[Turn]:
    """Whose turn it is in each group of a lease."""
    return [
        Turn(
            len(group.slots),
            group.role == "training",
            group.sequence,
            not (group.queued or group.dispatched),
            group.answered_seconds,
        )
        for group in lease.groups
    ]
