"""The ledger: every row of experience that was sent is in exactly one account.

Each account is observed where its rows are: it is never what is missing from a sum. So a sum that
does not come out, a residue, is a defect of the learner (or of an env server), and names itself.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from learner.serving.leases import Group, Lease


class Equation(NamedTuple):
    """Accounts whose rows are the same rows: those on the left, sorted into those on the right."""

    left: tuple[str, ...]
    right: tuple[str, ...]


# What the rows of each account are.
ACCOUNTS = {
    "sent": "rows that env servers say they sent under leases that are settled",
    "seen": "rows of these leases that arrived, each once",
    "lost": "rows of their last messages, which never arrived",
    "received": "rows that arrived, under any lease",
    "accepted": "rows taken into a queue",
    "fenced": "rows of a lease that had ended",
    "duplicate": "rows that had arrived before",
    "rejected": "rows that broke a rule",
    "queued": "rows that wait for a batch",
    "dispatched": "rows in a batch that is being computed",
    "struck": "rows taken from the queue because their lease ended",
    "answered": "rows that were acted on",
    "restored": "rows of open pages that came from a checkpoint",
    "evaluation": "rows of evaluation slots",
    "partial": "rows of open pages",
    "discarded": "rows of pages that were never filled, because their lease ended",
    "completed": "rows of full pages",
    "stored": "rows that replay has taken in since the start of the session",
    "abandoned": "rows of full pages that were on their way to replay when the session ended",
}
ALWAYS = (
    Equation(("sent",), ("seen", "lost")),
    Equation(("received",), ("accepted", "fenced", "duplicate", "rejected")),
    Equation(("accepted",), ("queued", "dispatched", "struck", "answered")),
    Equation(("answered", "restored"), ("evaluation", "partial", "discarded", "completed")),
)
# While the learner runs, full pages are also on their way.
AT_REST = (*ALWAYS, Equation(("completed",), ("stored", "abandoned")))


def residues(accounts: Mapping[str, int], equations: Iterable[Equation]) -> list[str]:
    """The equations that do not come out, one a line; accounts that are missing are 0."""
    return [
        f"ledger: {_sum(accounts, equation.left)}, but {_sum(accounts, equation.right)}; "
        f"residue {_total(accounts, equation.left) - _total(accounts, equation.right)} rows"
        for equation in equations
        if _total(accounts, equation.left) != _total(accounts, equation.right)
    ]


def _total(accounts: Mapping[str, int], names: tuple[str, ...]) -> int:
    return sum(accounts.get(name, 0) for name in names)


def _sum(accounts: Mapping[str, int], names: tuple[str, ...]) -> str:
    return " + ".join(f"{name} {accounts.get(name, 0)}" for name in names)


class SentSteps(NamedTuple):
    """What an env server says of one group under a lease that is over for it.

    Attributes:
      lease: the key that came with the lease.
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


# Env servers that never come back never report. Beyond this many leases the oldest is given up.
_MOST_UNSETTLED = 4096


class Settlement:
    """Settles each lease when both sides are done with it: what was sent against what was seen.

    An env server counts what it sends in memory that outlives it, and reports it when it, or its
    successor, comes back. As a group waits for its answer before its next step, at most one step
    of each group is on its way when a stream breaks. Not thread-safe.

    Attributes:
      accounts: `sent`, `seen`, `lost`, and `unsettled`: rows of leases that were given up.
      errors: what is wrong with a settled lease, one a line: more than that one step was lost, or a
        step was seen that was not sent, or answered that was not seen.
    """

    def __init__(self) -> None:
        self.accounts: Counter[str] = Counter()
        self.errors: list[str] = []
        self._ended: dict[int, Lease] = {}
        self._reported: dict[int, Sequence[SentSteps]] = {}
        self._settled: dict[int, Lease] = {}

    def ended(self, lease: Lease) -> None:
        """The lease has ended on this side."""
        self._ended[lease.key] = lease
        self._settle(lease.key)
        while len(self._ended) > _MOST_UNSETTLED:
            given_up = self._ended.pop(next(iter(self._ended)))
            self.accounts["unsettled"] += sum(_seen(group) for group in given_up.groups)

    def reported(self, report: Iterable[SentSteps], known: Iterable[Lease]) -> None:
        """Takes an env server's report; leases of earlier sessions of the run are not ours."""
        keys = {lease.key for lease in known} | self._ended.keys()
        by_lease: dict[int, list[SentSteps]] = {}
        for sent in report:
            if sent.lease in keys:
                by_lease.setdefault(sent.lease, []).append(sent)
        for key, steps in by_lease.items():
            self._reported[key] = steps
            self._settle(key)

    def late(self, group: Group) -> None:
        """A step that had not been seen arrives for a lease that has ended, maybe settled."""
        if group.lease.key in self._settled:
            self.accounts["lost"] -= len(group.slots)
            self.accounts["seen"] += len(group.slots)

    def _settle(self, key: int) -> None:
        if key not in self._ended or key not in self._reported:
            return
        lease = self._ended.pop(key)
        report = {sent.group: sent for sent in self._reported.pop(key)}
        for group in lease.groups:
            self._compare(group, report.get(group.number))
        self._settled[key] = lease
        if len(self._settled) > _MOST_UNSETTLED:
            del self._settled[next(iter(self._settled))]

    def _compare(self, group: Group, sent: SentSteps | None) -> None:
        steps, answered = (0, 0) if sent is None else (sent.steps, sent.answered)
        where = f"ledger: group {group.number} of {group.lease.peer}"
        if group.seen > steps:
            self.errors.append(f"{where}: sent {steps} steps, but {group.seen} were seen")
        if answered > group.seen:
            self.errors.append(f"{where}: {answered} steps were answered, but {group.seen} seen")
        if steps - answered > 1:
            self.errors.append(f"{where}: sent {steps} steps with {answered} answers")
        rows = len(group.slots)
        self.accounts["sent"] += steps * rows
        self.accounts["seen"] += _seen(group)
        # Not the difference: one step at most can be on its way, and it is this one.
        if steps == answered + 1 and group.seen == answered:
            self.accounts["lost"] += rows


def _seen(group: Group) -> int:
    return group.seen * len(group.slots)
