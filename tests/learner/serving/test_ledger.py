"""The ledger: sums that must balance."""

from learner.serving.ledger import ALWAYS, AT_REST, Equation, residues


def test_a_sum_that_does_not_balance_names_its_accounts() -> None:
    equation = Equation(("in", "restored"), ("kept", "lost"))
    assert residues({"in": 7, "kept": 4, "lost": 3}, [equation]) == []
    assert residues({"in": 7, "restored": 1, "kept": 5}, [equation]) == [
        "ledger: in 7 + restored 1, but kept 5 + lost 0; residue 3 rows"
    ]


def test_every_account_on_the_right_is_in_one_equation_only() -> None:
    right = [name for equation in AT_REST for name in equation.right]
    assert len(set(right)) == len(right)
    full = Equation(("completed",), ("stored", "stale", "abandoned"))
    assert set(AT_REST) - set(ALWAYS) == {full}
