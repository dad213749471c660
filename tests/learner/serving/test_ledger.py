"""The ledger: sums of accounts that must be equal."""

from learner.serving.ledger import residues


def test_a_sum_that_does_not_balance_names_its_accounts() -> None:
    equation = ("in", "restored"), ("kept", "lost")
    assert residues({"in": 7, "kept": 4, "lost": 3}, [equation]) == []
    (line,) = residues({"in": 7, "restored": 1, "kept": 5}, [equation])
    assert all(text in line for text in ("in 7", "restored 1", "kept 5", "lost 0", "residue 3"))
