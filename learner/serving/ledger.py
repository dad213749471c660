"""The ledger: every row of experience that was sent is in exactly one account.

Each account is observed where its rows are: it is never what is missing from a sum. So a sum that
does not balance, a residue, is a defect of the learner, and names itself. A peer's report of itself
never makes one: see `Reconciliation`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from learner.serving.leases import Group, Lease
from seedrl.wire.seedrl_pb2 import Sent

# Env servers that never return never report. Beyond this many leases the oldest is given up.
_MOST_LEASES = 4096

# Accounts whose rows are the same rows: those on the left, sorted into those on the right.
Equation: TypeAlias = tuple[tuple[str, ...], tuple[str, ...]]

# The rows of each account, for docs/metrics.md.
ACCOUNTS = {
    "sent": "rows that env servers report to have sent, under leases that are reconciled",
    "seen": "rows of these leases that arrived, each once",
    "lost": "rows of their last messages, which never arrived",
    "disputed": "time steps that arrived under leases whose env server reports impossible counts",
    "unsettled": "rows that arrived under leases that no env server ever reported",
    "received": "rows that arrived, under any lease",
    "accepted": "rows taken into a queue",
    "fenced": "rows of a lease that had ended",
    "duplicate": "rows that had arrived before",
    "rejected": "rows that broke a rule",
    "queued": "rows that wait for a batch",
    "dispatched": "rows in a batch that is being computed",
    "struck": "rows taken from the queue because their lease ended",
    "answered": "rows that were acted on",
    "evaluation": "rows of evaluation slots",
    "partial": "rows of open pages",
    "discarded": "rows of pages that were never filled, because their lease ended, or, in rounds, "
    "another's",
    "completed": "rows of full pages",
    "stored": "rows that replay has taken in since the start of the session",
    "stale": "rows of sequences that an on-policy queue has dropped when they arrived: they would "
    "have been trained with a policy lag above `max_lag_updates`",
    "requeued": "rows of sequences that were restored into an on-policy queue from a checkpoint",
    "taken": "rows of sequences that an on-policy queue has handed to an update, each once",
    "waiting": "time steps of sequences that wait in an on-policy queue; at the end of a session "
    "only `checkpoint.replay` keeps them",
    "abandoned": "rows of full pages that were on their way to replay when the session ended",
}
# In no equation: the number of such rows that were sent is not known.
APART = {"disputed", "unsettled"}
ALWAYS: tuple[Equation, ...] = (
    (("sent",), ("seen", "lost")),
    (("received",), ("accepted", "fenced", "duplicate", "rejected")),
    (("accepted",), ("queued", "dispatched", "struck", "answered")),
    (("answered",), ("evaluation", "partial", "discarded", "completed")),
)
# While the learner runs, full pages are also on their way.
AT_REST: tuple[Equation, ...] = (*ALWAYS, (("completed",), ("stored", "stale", "abandoned")))

# Of an on-policy queue, at rest: every sequence is trained once, or waits.
QUEUED: Equation = (("stored", "requeued"), ("taken", "waiting"))


def residues(accounts: Mapping[str, int], equations: Iterable[Equation]) -> list[str]:
    """The equations that do not balance, one a line; accounts that are missing are 0."""
    broken = []
    for left, right in equations:
        residue = sum(accounts.get(name, 0) for name in left)
        residue -= sum(accounts.get(name, 0) for name in right)
        if residue:
            sums = (
                " + ".join(f"{name} {accounts.get(name, 0)}" for name in names)
                for names in (left, right)
            )
            broken.append(f"ledger: {', but '.join(sums)}; residue {residue} rows")
    return broken


class Reconciliation:
    """Reconciles each lease that has ended, once, when an env server reports it.

    An env server counts what it sends in memory that outlives it, and reports it when it, or its
    successor, returns. A report is its sender's word: the rows of a lease of which it cannot be
    true are counted apart, and the others always add up. The hub's lock guards it.
    """

    def __init__(self) -> None:
        self.accounts: Counter[str] = Counter()
        self._ended: dict[int, Lease] = {}  # by key, those that no env server has reported
        # By key, the steps that each group sent; None if they are disputed.
        self._reported: dict[int, dict[int, int] | None] = {}

    @property
    def num_unreported(self) -> int:
        return len(self._ended)

    def ended(self, lease: Lease) -> None:
        """The lease has ended on this side."""
        self._ended[lease.key] = lease
        if len(self._ended) > _MOST_LEASES:
            given_up = self._ended.pop(next(iter(self._ended)))
            self.accounts["unsettled"] += _rows_seen(given_up)

    def reported(self, report: Iterable[Sent]) -> list[str]:
        """Takes an env server's report; returns what of it cannot be true, one lease a line."""
        by_lease: dict[int, list[Sent]] = {}
        for sent in report:
            # Others are live, another learner's, or reported before: a report is repeated until an
            # Assign confirms it.
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

    def _reconcile(self, lease: Lease, report: Sequence[Sent]) -> str:
        if problem := _problem(lease, report):
            self.accounts["disputed"] += _rows_seen(lease)
            self._remember(lease, None)
            return f"lease of {lease.peer}: {problem}"
        for sent in report:
            group = lease.groups[sent.group]
            rows = len(group.slots)
            self.accounts["sent"] += sent.steps * rows
            self.accounts["seen"] += group.seen * rows
            # Not the difference: a group waits for its answer before its next step, so that at most
            # one step is on its way when a connection breaks, and it is this one.
            if sent.steps == sent.answered + 1 and group.seen == sent.answered:
                self.accounts["lost"] += rows
        self._remember(lease, {sent.group: sent.steps for sent in report})
        return ""

    def _remember(self, lease: Lease, steps: dict[int, int] | None) -> None:
        self._reported[lease.key] = steps
        if len(self._reported) > _MOST_LEASES:
            del self._reported[next(iter(self._reported))]


def _problem(lease: Lease, report: Sequence[Sent]) -> str:
    """Why a report of a lease cannot be true; empty if it can."""
    numbers = {sent.group for sent in report}
    if len(numbers) != len(report) or max(numbers) >= len(lease.groups):
        return f"expected each of {len(lease.groups)} groups once, got {len(report)} reports"
    # A group that is not in the report has sent nothing.
    if any(group.seen for group in lease.groups if group.number not in numbers):
        return "steps were seen of a group that is not in the report"
    for sent in report:
        group = lease.groups[sent.group]
        if sent.num_envs != len(group.slots):
            return f"expected {len(group.slots)} environments, got {sent.num_envs}"
        is_possible = sent.answered <= group.seen <= sent.steps <= sent.answered + 1
        if not is_possible:
            return (
                f"group {group.number}: expected answered <= seen <= sent <= answered + 1, got "
                f"{sent.answered} answered, {group.seen} seen, {sent.steps} sent"
            )
    return ""


def _rows_seen(lease: Lease) -> int:
    return sum(group.seen * len(group.slots) for group in lease.groups)
