"""The ledger: sums that must come out, and leases settled between both sides."""

import numpy as np
import pytest

from learner.serving.leases import Lease, SlotTable
from learner.serving.ledger import ALWAYS, AT_REST, Equation, SentSteps, Settlement, residues

_ROWS = 3


def _lease(*seen: int) -> Lease:
    """A lease of groups of three rows, of each of which so many steps have arrived."""
    table = SlotTable(training=_ROWS * len(seen), evaluation=0, seed=5)
    lease = table.lease(_ROWS * len(seen), len(seen), "host:7")
    for group, steps in zip(lease.groups, seen, strict=True):
        group.seen = steps
    return lease


def _sent(lease: Lease, *steps: tuple[int, int]) -> list[SentSteps]:
    return [
        SentSteps(lease.key, group, _ROWS, sent, answered)
        for group, (sent, answered) in enumerate(steps)
    ]


def test_a_sum_that_does_not_come_out_names_its_accounts() -> None:
    equation = Equation(("in", "restored"), ("kept", "lost"))
    assert residues({"in": 7, "kept": 4, "lost": 3}, [equation]) == []
    assert residues({"in": 7, "restored": 1, "kept": 5}, [equation]) == [
        "ledger: in 7 + restored 1, but kept 5 + lost 0; residue 3 rows"
    ]


def test_every_account_on_the_right_is_in_one_equation_only() -> None:
    right = [name for equation in AT_REST for name in equation.right]
    assert len(set(right)) == len(right)
    assert set(AT_REST) - set(ALWAYS) == {Equation(("completed",), ("stored", "abandoned"))}


@pytest.mark.parametrize("is_reported_first", [False, True])
def test_a_lease_is_settled_when_both_sides_are_done(is_reported_first: bool) -> None:
    lease = _lease(5, 2)
    settlement = Settlement()
    report = _sent(lease, (6, 5), (2, 2))
    if is_reported_first:
        settlement.reported(report, known=[lease])
        assert settlement.accounts == {}
        settlement.ended(lease)
    else:
        settlement.ended(lease)
        assert settlement.accounts == {}
        settlement.reported(report, known=[])
    assert settlement.accounts == {"sent": 8 * _ROWS, "seen": 7 * _ROWS, "lost": _ROWS}
    assert settlement.errors == []
    settlement.reported(report, known=[])  # the Assign that confirmed it was lost
    assert settlement.accounts["sent"] == 8 * _ROWS


@pytest.mark.parametrize(
    ("seen", "sent", "answered", "message"),
    [
        (4, 3, 3, "sent 3 steps, but 4 were seen"),
        (2, 3, 3, "3 steps were answered, but 2 seen"),
        (2, 4, 2, "sent 4 steps with 2 answers"),
    ],
)
def test_what_cannot_be_is_an_error(seen: int, sent: int, answered: int, message: str) -> None:
    lease = _lease(seen)
    settlement = Settlement()
    settlement.ended(lease)
    settlement.reported(_sent(lease, (sent, answered)), known=[])
    assert settlement.errors[0] == f"ledger: group 0 of host:7: {message}"
    assert residues(settlement.accounts, ALWAYS) != []


def test_a_group_that_the_env_server_does_not_know_of_has_sent_nothing() -> None:
    lease = _lease(0, 1)
    settlement = Settlement()
    settlement.ended(lease)
    settlement.reported(_sent(lease, (0, 0)), known=[])
    assert settlement.errors == ["ledger: group 1 of host:7: sent 0 steps, but 1 were seen"]


def test_a_step_that_comes_after_the_settlement_was_not_lost() -> None:
    lease = _lease(1)
    (group,) = lease.groups
    settlement = Settlement()
    settlement.ended(lease)
    settlement.reported(_sent(lease, (2, 1)), known=[])
    assert settlement.accounts["lost"] == _ROWS
    settlement.late(group)
    assert +settlement.accounts == {"sent": 2 * _ROWS, "seen": 2 * _ROWS}


def test_leases_of_another_session_are_not_ours() -> None:
    ours, theirs = _lease(1), _lease(1)
    theirs.key = np.iinfo(np.int64).max
    settlement = Settlement()
    settlement.ended(ours)
    settlement.reported(_sent(theirs, (9, 9)), known=[])
    assert settlement.accounts == {} and settlement.errors == []


def test_leases_that_are_never_reported_are_given_up_in_the_end() -> None:
    settlement = Settlement()
    table = SlotTable(training=1, evaluation=0, seed=0)
    for _ in range(4100):
        lease = table.lease(1, 1, "peer")
        lease.groups[0].seen = 2
        table.end(lease)
        settlement.ended(lease)
    assert settlement.accounts == {"unsettled": 4 * 2}
