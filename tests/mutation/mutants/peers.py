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
        "learner/serving/access.py",
        "        if len(shown) != 1:\n",
        "        if not shown:\n",
        "A second token in the metadata is not looked at.",
        "the token is shown once and whole",
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
