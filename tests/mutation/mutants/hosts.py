"""Bugs between the hosts of a run: what they agree on, whom they lose, and what they save."""

from tests.mutation.mutant import Mutant

_LIMITER = "learner/hosts/agreed_limiter.py"
_AGREEMENT = "learner/hosts/agreement.py"
_PEERS = "learner/hosts/peers.py"
_MEETING = "learner/hosts/meeting.py"
_SAVE = "learner/saving/shared_save.py"

MUTANTS = (
    Mutant(
        "vote_counted_twice",
        _LIMITER,
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
        "able_if_the_first_host_is",
        _AGREEMENT,
        "are_able=all(vote.is_able for vote in votes)",
        "are_able=votes[0].is_able",
        "Hosts learn while one of them compiles, and wait for it in a collective.",
        "an update is taken by all hosts or by none",
    ),
    Mutant(
        "end_wanted_by_the_first_host_alone",
        _AGREEMENT,
        'next((vote.wants_end for vote in votes if vote.wants_end), "")',
        "votes[0].wants_end",
        "A signal to another host than the first one ends nothing.",
        "a signal to one host ends the run on all, with one checkpoint",
    ),
    Mutant(
        "gone_host_not_noticed",
        _PEERS,
        "            self._lose(index, why_lost(error))\n            return False\n",
        "            return False\n",
        "A host whose process has died is waited for.",
        "a host that is gone ends the others at once",
    ),
    Mutant(
        "silent_host_not_noticed",
        _PEERS,
        "            self._silent[index] += 1\n",
        "            self._silent[index] += 0\n",
        "A host that hangs, or whose machine is gone, is waited for.",
        "a host that is silent for 20 s ends the others",
    ),
    Mutant(
        "loss_told_to_nobody",
        _PEERS,
        "                if other != index and other not in self.left:\n",
        "                if other == index:\n",
        "Only the first host ends when another one has failed; the others blame the first.",
        "each host that is left names the one that was lost",
    ),
    Mutant(
        "host_that_left_keeps_others",
        "learner/session/sharing/end.py",
        "return bool(agenda.end or self._hosts.peers.left)",
        "return bool(agenda.end)",
        "A host goes on for ever when another one has ended.",
        "hosts end together",
    ),
    Mutant(
        "parameters_compared_with_themselves",
        _SAVE,
        "if all(each == found[0] for each in found):",
        "if all(each == each for each in found):",
        "Hosts that have drifted apart go on, each with parameters of its own.",
        "a difference in one bit between hosts ends the run with 81",
    ),
    Mutant(
        "replay_indices_of_one_host",
        _SAVE,
        "[index for part in parts for index in part[2]]",
        "[index for part in parts for index in parts[0][2]]",
        "The shards of all hosts are saved with the page index of the first.",
        "a checkpoint has the shards of all hosts",
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
        "gone_guest_still_counted",
        _MEETING,
        "        except (EOFError, OSError):\n            return False\n",
        "        except (EOFError, OSError):\n            return guest.index is not None\n",
        "A host that has died before the others came is taken for one that is there.",
        "hosts begin when all of them are there",
    ),
    Mutant(
        "proof_of_a_host_not_looked_at",
        _MEETING,
        'self._token.accepts(message.get("proof"), ',
        'self._token.accepts(self._token.proof("other", guest.challenges, said), ',
        "Whoever reaches the meeting takes a host's place.",
        "a host shows that it has the token (docs/threat-model.md)",
    ),
    Mutant(
        "first_host_not_asked_for_proof",
        "learner/hosts/dialing.py",
        'if not token.accepts(answer.get("proof"), "first", challenges, welcome):',
        "if welcome is None:",
        "Whoever answers at the coordinator's address is taken for the first host.",
        "the first host shows that it has the token (docs/threat-model.md)",
    ),
)
