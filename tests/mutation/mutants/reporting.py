"""Mutants of what a run says of itself."""

from tests.mutation.mutant import Mutant

_ENV_SERVER = "learner/reporting/env_servers/env_server.py"
_ATTENDANCE = "learner/reporting/env_servers/attendance.py"
_EVENTS = "learner/reporting/events.py"

MUTANTS = (
    Mutant(
        "waiting_since_ever",
        _ENV_SERVER,
        "    return now if before is None or before[0] != sequence else before[1]\n",
        "    return now if before is None else before[1]\n",
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
    Mutant(
        "failures_forgotten_at_return",
        _ENV_SERVER,
        "        self.failures, self.last_failure = before.failures, before.last_failure\n",
        "",
        "Each failure of an environment is its env server's first.",
        "failures are counted, and the last one is named (issue 13)",
    ),
    Mutant(
        "successor_is_a_stranger",
        _ATTENDANCE,
        "                if other.arrival.key in arrival.earlier:\n",
        "                if other.arrival.key == arrival.key:\n",
        "Who comes in the place of a killed env server seems to join anew.",
        "who returns is told from who joins (issue 13)",
    ),
    Mutant(
        "flood_never_ends",
        _EVENTS,
        "        if minute != self._minute:\n",
        "        if minute < self._minute:\n",
        "After one flood of a kind of event none of it is told any more.",
        "what happens is said (issue 13)",
    ),
)
