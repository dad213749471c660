"""The ledger: every row of experience that arrives is in exactly one account.

Each account is observed where its rows are: it is never what is missing from a sum. So a sum that
does not balance, a residue, is a defect of the learner, and names itself.
"""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

# Accounts whose rows are the same rows: those on the left, sorted into those on the right.
Equation: TypeAlias = tuple[tuple[str, ...], tuple[str, ...]]

# The rows of each account, for docs/metrics.md.
ACCOUNTS = {
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
    "discarded": "rows of pages that were never filled, because their lease ended or their "
    "environment was rebuilt; with the synchronous schedule, because any stream started again",
    "completed": "rows of full pages",
    "stored": "rows that replay has taken in since the start of the session",
    "stale": "rows of sequences that an on-policy queue dropped on arrival, because their policy "
    "lag would have exceeded `max_lag_updates`",
    "requeued": "rows of sequences that were restored into an on-policy queue from a checkpoint",
    "taken": "rows of sequences that an on-policy queue has handed to an update, each once",
    "waiting": "time steps of sequences that wait in an on-policy queue; at the end of a session "
    "only `checkpoint.replay` keeps them",
    "abandoned": "rows of full pages that were on their way to replay when the session ended",
    "generated_tokens": "tokens that a token policy sampled on training slots in this session",
    "trained_tokens": "of these, tokens of rollouts that an update has taken, each once",
    "waiting_tokens": "of these, tokens of rollouts that are open, wait for their group, or wait "
    "to be trained",
    "lost_tokens": "of these, tokens of rollouts whose env server or environment failed",
}
ALWAYS: tuple[Equation, ...] = (
    (("received",), ("accepted", "fenced", "duplicate", "rejected")),
    (("accepted",), ("queued", "dispatched", "struck", "answered")),
    (("answered",), ("evaluation", "partial", "discarded", "completed")),
)
# While the learner runs, full pages are also on their way.
AT_REST: tuple[Equation, ...] = (*ALWAYS, (("completed",), ("stored", "stale", "abandoned")))

# Of an on-policy queue, at rest: every sequence is trained once, or waits.
QUEUED: Equation = (("stored", "requeued"), ("taken", "waiting"))

# Of a token policy, at rest. Its rows are turns and its pages rollouts, so that `completed` and
# `stored` do not count the same.
TOKENS: tuple[Equation, ...] = (
    *ALWAYS,
    (("generated_tokens",), ("trained_tokens", "waiting_tokens", "lost_tokens")),
)


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
