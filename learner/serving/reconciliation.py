"""What env servers report to have sent, against what this learner has seen of it."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from learner.serving.leases import Group, Lease


class SentSteps(NamedTuple):
    """What an env server reports of one group under a lease that is over for it.

    Attributes:
      lease: the key that was given with the lease.
      group: the group's number.
      num_envs: rows of each of its steps.
      steps: steps that it sent.
      answered: steps of these to which it received actions.
    """

    lease: int
    group: int
    num_envs: int
    steps: int
    answered: int


# Env servers that never return never report. Beyond this many leases the oldest is given up.
_MOST_LEASES = 4096


class Reconciliation:
    """Reconciles each lease that has ended, once, when an env server reports it.

    An env server counts what it sends in memory that outlives it, and reports it when it, or its
    successor, returns. As a group waits for its answer before its next step, at most one step of
    each group is on its way when a connection breaks. A report is its sender's word: the rows of a
    lease of which it cannot be true are counted apart, and what is left always adds up. Not
    thread-safe.

    Attributes:
      accounts: `sent`, `seen`, `lost`, `disputed` and `unsettled`; see `learner.serving.ledger`.
    """

    def __init__(self) -> None:
        self.accounts: Counter[str] = Counter()
        self._ended: dict[int, Lease] = {}
        # By key, the steps that each group sent; None if they are disputed.
        self._reported: dict[int, dict[int, int] | None] = {}
        self._ready_peers: dict[str, None] = {}  # the latest last

    @property
    def num_unreported(self) -> int:
        """Leases that have ended and that nobody has reported."""
        return len(self._ended)

    def has_been_ready(self, peer: str, keys: Iterable[int]) -> bool:
        """Whether the environments of an earlier lease were built: this peer's, or of such a key.

        A peer need not report, and a report is gone with the Hello that found no slot.
        """
        return peer in self._ready_peers or any(
            key in self._ended and self._ended[key].is_ready for key in keys
        )

    def ended(self, lease: Lease) -> None:
        """The lease has ended on this side."""
        self._ended[lease.key] = lease
        if lease.is_ready:
            self._ready_peers.pop(lease.peer, None)
            self._ready_peers[lease.peer] = None
            if len(self._ready_peers) > _MOST_LEASES:
                del self._ready_peers[next(iter(self._ready_peers))]
        if len(self._ended) > _MOST_LEASES:
            given_up = self._ended.pop(next(iter(self._ended)))
            self.accounts["unsettled"] += _rows_seen(given_up)

    def reported(self, report: Iterable[SentSteps]) -> list[str]:
        """Takes an env server's report; returns what of it cannot be true, one lease a line.

        Leases that are live, reported before, or another learner's are ignored: a key is only
        known to whom it was given, and a report is repeated until an Assign confirms it.
        """
        by_lease: dict[int, list[SentSteps]] = {}
        for sent in report:
            if sent.lease in self._ended:
                by_lease.setdefault(sent.lease, []).append(sent)
        found = [self._reconcile(self._ended.pop(key), sent) for key, sent in by_lease.items()]
        return [line for line in found if line]

    def late(self, group: Group) -> None:
        """A step that had not been seen arrives for a lease that has ended, maybe reconciled."""
        steps = self._reported.get(group.lease.key)
        if steps is None:
            return
        rows = len(group.slots)
        if group.seen <= steps.get(group.number, 0):
            self.accounts["lost"] -= rows
            self.accounts["seen"] += rows
        else:
            self.accounts["disputed"] += rows

    def _reconcile(self, lease: Lease, report: Sequence[SentSteps]) -> str:
        """Counts a lease's rows; what is wrong with the report, if something is."""
        if problem := _problem(lease, report):
            self.accounts["disputed"] += _rows_seen(lease)
            self._remember(lease, None)
            return f"lease of {lease.peer}: {problem}"
        for sent in report:
            group = lease.groups[sent.group]
            rows = len(group.slots)
            self.accounts["sent"] += sent.steps * rows
            self.accounts["seen"] += group.seen * rows
            # Not the difference: one step at most can be on its way, and it is this one.
            if sent.steps == sent.answered + 1 and group.seen == sent.answered:
                self.accounts["lost"] += rows
        self._remember(lease, {sent.group: sent.steps for sent in report})
        return ""

    def _remember(self, lease: Lease, steps: dict[int, int] | None) -> None:
        self._reported[lease.key] = steps
        if len(self._reported) > _MOST_LEASES:
            del self._reported[next(iter(self._reported))]


def _problem(lease: Lease, report: Sequence[SentSteps]) -> str:
    """Why a report of a lease cannot be true; empty if it can."""
    numbers = [sent.group for sent in report]
    if len(set(numbers)) != len(numbers) or max(numbers) >= len(lease.groups):
        return f"expected each of {len(lease.groups)} groups once, got groups {numbers[:10]}"
    # A group that is not in the report has sent nothing.
    missing = (group for group in lease.groups if group.number not in set(numbers))
    if group := next((group for group in missing if group.seen), None):
        return f"group {group.number}: 0 steps were sent, but {group.seen} were seen"
    for sent in report:
        group = lease.groups[sent.group]
        where = f"group {group.number}"
        if sent.num_envs != len(group.slots):
            return f"{where}: expected {len(group.slots)} environments, got {sent.num_envs}"
        if not sent.answered <= sent.steps <= sent.answered + 1:
            return f"{where}: {sent.steps} steps were sent with {sent.answered} answers"
        if sent.answered > group.seen:
            return f"{where}: {sent.answered} steps were answered, but {group.seen} were seen"
        if sent.steps < group.seen:
            return f"{where}: {sent.steps} steps were sent, but {group.seen} were seen"
    return ""


def _rows_seen(lease: Lease) -> int:
    return sum(group.seen * len(group.slots) for group in lease.groups)
