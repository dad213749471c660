"""Bugs in env servers: what they say of their environments, and what they do with actions."""

from tests.mutation.mutant import Mutant

_ADAPTER = "envs_server/adapter.py"
_GROUP = "envs_server/groups.py"
_LEASE = "envs_server/client.py"
_SUPERVISOR = "envs_server/supervisor.py"
_LOOP = "envs_server/loop.py"

MUTANTS = (
    Mutant(
        "environments_zero_ends_its_env_server",
        _SUPERVISOR,
        "if has_finished(self._log(child.number)):",
        "if code == ExitCode.OK or has_finished(self._log(child.number)):",
        "An environment that ends its process with 0 is taken for the end of training.",
        "an environment that ends its process costs its env server a start (matrix, E2)",
    ),
    Mutant(
        "truncation_sent_as_termination",
        _ADAPTER,
        "discount = np.logical_not(terminated).astype(np.float32)",
        "discount = np.logical_not(self._is_last).astype(np.float32)",
        "A truncated episode is sent as one that terminated.",
        "a LAST with discount 1 was truncated (DESIGN 4)",
    ),
    Mutant(
        "termination_lost",
        _ADAPTER,
        "discount = np.logical_not(terminated).astype(np.float32)",
        "discount = np.ones(len(actions), np.float32)",
        "A terminated episode is sent as one that was truncated.",
        "discount 0 means terminated (DESIGN 4)",
    ),
    Mutant(
        "truncation_not_last",
        _ADAPTER,
        "np.logical_or(terminated, truncated)",
        "np.array(terminated, np.bool_)",
        "A truncated episode continues as if nothing had happened.",
        "the true last observation is always sent (DESIGN 4)",
    ),
    Mutant(
        "step_type_one_row_off",
        _ADAPTER,
        "return TimeStep(step_type, reward, discount, observation)\n",
        "return TimeStep(np.roll(step_type, 1), reward, discount, observation)\n",
        "Step types are those of the next environment.",
        "no row is swapped (DESIGN 9.2)",
    ),
    Mutant(
        "reward_one_row_off",
        _ADAPTER,
        "reward = np.array(reward, np.float32)\n",
        "reward = np.roll(np.array(reward, np.float32), 1)\n",
        "Rewards are those of the next environment.",
        "no row is swapped (DESIGN 9.2)",
    ),
    Mutant(
        "reward_on_first",
        _ADAPTER,
        "            reward[is_first] = 0\n",
        "",
        "The first step of an episode carries a reward.",
        "reward is 0 on FIRST (wire contract)",
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
        "actions_of_another_step",
        _GROUP,
        "if header.sequence != sequence:",
        "if header.sequence > sequence:",
        "Actions for an earlier step are taken.",
        "an action answers the step in flight (DESIGN 5)",
    ),
    Mutant(
        "group_order_swapped",
        _LEASE,
        "step = self._groups[group].step(actions)",
        "step = self._groups[-1 - group].step(actions)",
        "Actions go to another group.",
        "no row is swapped (DESIGN 9.2)",
    ),
    Mutant(
        "seeds_in_reverse",
        _LEASE,
        "[int(seed) for seed in group.seeds],\n",
        "[int(seed) for seed in group.seeds][::-1],\n",
        "Environments get each other's seeds.",
        "a seed is that of its slot (DESIGN 5)",
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
    Mutant(
        "later_groups_of_a_message_dropped",
        "seedrl/wire/payload.py",
        "        data = view[size:]\n",
        "        return\n",
        "Of a message with several groups only the first is read.",
        "no step is lost on its way (DESIGN 9.1)",
    ),
    Mutant(
        "large_integers_accepted",
        "seedrl/wire/values.py",
        "    if leaf.min() < -(2**31) or leaf.max() >= 2**31:\n",
        "    if leaf.min() < -(2**63) or leaf.max() >= 2**63:\n",
        "An integer of 64 bits is cut to 32 in silence.",
        "nothing happens to experience on its way (DESIGN 9.2)",
    ),
)
