"""Bugs in what keeps peers from harming others: who is admitted, to how much, and for how long."""

from tests.mutation.mutant import Mutant

MUTANTS = (
    Mutant(
        "token_compared_without_counting",
        "learner/serving/access.py",
        "        if len(shown) != 1:\n",
        "        if not shown:\n",
        "A second token in the metadata is not looked at.",
        "the token is shown once and whole",
    ),
)
