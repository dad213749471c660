"""Bugs in env servers: what they say of their environments, and what they do with actions."""

from tests.mutation.mutant import Mutant

_GROUPS = "envs_server/groups.py"
_LOOP = "envs_server/loop.py"

MUTANTS = (
    Mutant(
        "truncation_sent_as_termination",
        _GROUPS,
        "discount = np.logical_not(terminated).astype(np.float32)",
        "discount = np.logical_not(self._is_last).astype(np.float32)",
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
        "        self._restarted = self._marked(self._restarted, row)\n",
        "",
        "The first step of an environment that was built again continues the broken episode.",
    ),
)
