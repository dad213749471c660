"""The ledger: every row of experience that was sent is in exactly one account.

Each account is observed where its rows are: it is never what is missing from a sum. So a sum that
does not balance, a residue, is a defect of the learner, and names itself. What a peer reports of
itself never makes one: see `learner.serving.reconciliation`.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Equation(NamedTuple):
    """Accounts whose rows are the same rows: those on the left, sorted into those on the right."""

    left: tuple[str, ...]
    right: tuple[str, ...]


# What the rows of each account are.
ACCOUNTS = {
    "sent": "rows that env servers report to have sent, under leases that are reconciled",
    "seen": "rows of these leases that arrived, each once",
    "lost": "rows of their last messages, which never arrived",
    "disputed": "rows that arrived under leases whose env server reports what cannot be true",
    "unsettled": "rows that arrived under leases that nobody ever reported",
    "received": "rows that arrived, under any lease",
    "accepted": "rows taken into a queue",
    "fenced": "rows of a lease that had ended",
    "duplicate": "rows that had arrived before",
    "rejected": "rows that broke a rule",
    "queued": "rows that wait for a batch",
    "dispatched": "rows in a batch that is being computed",
    "struck": "rows taken from the queue because their lease ended",
    "answered": "rows that were acted on",
    "restored": "rows of open pages that were restored from a checkpoint",
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
    "waiting": "rows of sequences that wait in an on-policy queue; at the end of a session, what "
    "only `checkpoint.replay` keeps",
    "abandoned": "rows of full pages that were on their way to replay when the session ended",
}
# In no equation: of these rows nobody knows how many were sent.
APART = {"disputed", "unsettled"}
ALWAYS = (
    Equation(("sent",), ("seen", "lost")),
    Equation(("received",), ("accepted", "fenced", "duplicate", "rejected")),
    Equation(("accepted",), ("queued", "dispatched", "struck", "answered")),
    Equation(("answered", "restored"), ("evaluation", "partial", "discarded", "completed")),
)
# While the learner runs, full pages are also on their way.
AT_REST = (*ALWAYS, Equation(("completed",), ("stored", "stale", "abandoned")))

# Of an on-policy queue, at rest: every sequence is trained once, or waits.
QUEUED = Equation(("stored", "requeued"), ("taken", "waiting"))


def residues(accounts: Mapping[str, int], equations: Iterable[Equation]) -> list[str]:
    """The equations that do not balance, one a line; accounts that are missing are 0."""
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
