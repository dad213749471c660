"""Bugs in what keeps peers from harming others: who is admitted, to how much, and for how long."""

from tests.mutation.mutant import Mutant

_AGREEMENT = "learner/serving/handshake/agreement.py"

MUTANTS = (
    Mutant(
        "unfit_environment_stays_the_one",
        _AGREEMENT,
        "        self.spec, self.is_agreed = None, False\n        proposers",
        "        self.is_agreed = False\n        proposers",
        "What the run cannot use is what later env servers must have built.",
        "what a peer says of itself never ends a learner, nor keeps others out",
    ),
    Mutant(
        "right_one_refused_during_a_trial",
        _AGREEMENT,
        "        if not self._is_final:\n            raise EndError(\n"
        "                grpc.StatusCode.UNAVAILABLE,",
        "        if not self._is_final:\n            raise EndError(\n"
        "                grpc.StatusCode.FAILED_PRECONDITION,",
        "An env server that arrives while another's environment is looked at goes for good.",
        "a lying peer harms only itself",
    ),
    Mutant(
        "token_compared_without_counting",
        "learner/serving/access/token_check.py",
        "        if len(shown) != 1:\n",
        "        if not shown:\n",
        "A second token in the metadata is not looked at.",
        "the token is shown once and whole",
    ),
    Mutant(
        "calls_cost_nothing",
        "learner/serving/access/pace.py",
        "            self.charge(address, 1)\n",
        "            self.charge(address, 0)\n",
        "Any number of calls of one address may begin.",
        "a greedy peer harms only itself (T10)",
    ),
    Mutant(
        "strangers_share_the_pace",
        "learner/serving/access/entry.py",
        "        if not self._paces[has_token].take(address):\n",
        "        if not self._paces[True].take(address):\n",
        "Who shows no token keeps out those of its address who do.",
        "nobody gets in the way without the token",
    ),
    Mutant(
        "hello_never_due",
        "learner/serving/handshake/deadlines.py",
        "        if not connection.has_said_hello:\n            _end(connection, f",
        "        if connection.is_ready:\n            _end(connection, f",
        "A connection that says nothing is held for ever.",
        "a silent peer is ended within 3 seconds (T10)",
    ),
    Mutant(
        "greedy_hello_takes_all",
        "learner/serving/leases.py",
        "        return max(share, -(-self.num_free // 2))\n",
        "        return max(share, self.num_free)\n",
        "One Hello reserves every free slot before its sender is ready.",
        "half of the free slots at most until Ready (T10)",
    ),
)
