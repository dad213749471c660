"""Mutants of what a run says of itself."""

from tests.mutation.mutant import Mutant

_REGISTRY = "learner/reporting/env_servers.py"

MUTANTS = (
    Mutant(
        "waiting_since_ever",
        _REGISTRY,
        "        return now if before is None or before[0] != sequence else before[1]\n",
        "        return now if before is None else before[1]\n",
        "A group that is waited for at each look seems to hang, though it has stepped in between.",
        "an env server that hangs is named, and no other (issue 13)",
    ),
    Mutant(
        "learners_turn_counts_as_waiting",
        "learner/serving/peer.py",
        "            not (group.queued or group.dispatched),\n",
        "            not group.queued,\n",
        "An env server whose step is being acted on seems to owe one.",
        "an env server that hangs is named, and no other (issue 13)",
    ),
)
