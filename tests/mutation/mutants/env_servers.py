"""Bugs in env servers: what they say of their environments, and what they do with actions."""

from tests.mutation.mutant import Mutant

_LOOP = "envs_server/loop.py"

MUTANTS = (
    Mutant(
        "truncation_sent_as_termination",
        _LOOP,
        "self._discount[row] = not terminated",
        "self._discount[row] = 0",
        "A truncated episode is sent as one that terminated.",
    ),
    Mutant(
        "last_observation_of_next_episode",
        _LOOP,
        "                # Where there are no masks, an episode's start and end are looked at.\n",
        """                if terminated or truncated:
                    observation = env.reset()[0]
""",
        "The last step of an episode shows the first observation of the next one.",
    ),
    Mutant(
        "restart_continues_the_episode",
        _LOOP,
        "self._step_type[row], self._discount[row], self._reward[row] = _FIRST, 1, 0",
        "self._discount[row], self._reward[row] = 1, 0",
        "The first step of an environment that was built again continues the broken episode.",
    ),
)
