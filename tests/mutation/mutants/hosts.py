"""Bugs between the hosts of a run: what they agree on, whom they lose, and what they save."""

from tests.mutation.mutant import Mutant

_AGREEMENT = "learner/multihost/agreement.py"
_MEETING = "learner/multihost/meeting.py"

MUTANTS = (
    Mutant(
        "vote_counted_twice",
        _AGREEMENT,
        "            self._steps -= steps\n",
        "            self._steps -= 0\n",
        "Steps that a host has reported are in its next vote again.",
        "steps of all hosts are counted once, so that the replay ratio holds",
    ),
    Mutant(
        "steps_of_the_first_host_alone",
        _AGREEMENT,
        "steps=sum(vote.steps for vote in votes)",
        "steps=votes[0].steps",
        "What other hosts act is not learned from as often.",
        "the limiter decides by the counts of all hosts",
    ),
    Mutant(
        "shards_of_the_first_host_for_all",
        "learner/build.py",
        "first = geometry.place.host_index * len(geometry.devices)",
        "first = 0 * len(geometry.devices)",
        "After a resume all hosts have the first one's experience.",
        "each host resumes with its own shards",
    ),
    Mutant(
        "proof_of_a_host_not_looked_at",
        _MEETING,
        'if _is_same(message.get("proof"), expected):',
        "if expected:",
        "Whoever reaches the meeting takes a host's place.",
        "a host shows that it has the token (docs/threat-model.md)",
    ),
)
