"""Bugs in env servers: what they say of their environments, and what they do with actions."""

from tests.mutation.mutant import Mutant

_ADAPTER = "envs_server/adapter.py"
_LEASE = "envs_server/client.py"
_LOOP = "envs_server/loop.py"

MUTANTS = (
    Mutant(
        "truncation_sent_as_termination",
        _ADAPTER,
        "discount = np.logical_not(terminated).astype(np.float32)",
        "discount = np.logical_not(self._is_last).astype(np.float32)",
        "A truncated episode is sent as one that terminated.",
        "a LAST with discount 1 was truncated (DESIGN 4)",
    ),
    Mutant(
        "last_observation_of_next_episode",
        _LOOP,
        """                self._write(row, observation)
                self._reward[row] = reward
""",
        """                if terminated or truncated:
                    observation = env.reset()[0]
                self._write(row, observation)
                self._reward[row] = reward
""",
        "The last step of an episode shows the first observation of the next one.",
        "the true last observation is always sent (DESIGN 4)",
    ),
    Mutant(
        "restart_continues_the_episode",
        _LOOP,
        "        self._restarted[row] = True\n",
        "",
        "The first step of an environment that was built again continues the broken episode.",
        "nothing is bootstrapped across a cut (DESIGN 4)",
    ),
    Mutant(
        "action_offset_not_added",
        "envs_server/spaces.py",
        "return lambda actions: actions.astype(np.int64) + start",
        "return lambda actions: actions.astype(np.int64)",
        "Environments whose actions do not begin with 0 get other actions.",
        "the executed action is stored (DESIGN 4)",
    ),
    Mutant(
        "group_order_swapped",
        _LEASE,
        "step = self._groups[group].step(memoryview(data))",
        "step = self._groups[-1 - group].step(memoryview(data))",
        "Actions go to another group.",
        "no row is swapped (DESIGN 9.2)",
    ),
    Mutant(
        "nan_reward_accepted",
        "seedrl/wire/payload.py",
        "        check_rewards(reward, largest)\n",
        "        pass\n",
        "A reward that is not a number reaches the learner.",
        "nothing non-finite reaches replay (DESIGN 9.7)",
    ),
    Mutant(
        "box_turned_around",
        "seedrl/specs.py",
        "np.clip(middle + half * actions, low, high)",
        "np.clip(middle - half * actions, low, high)",
        "Real actions mean the other end of their bounds.",
        "the executed action is stored (DESIGN 4)",
    ),
)
