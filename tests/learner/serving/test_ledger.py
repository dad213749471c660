"""Leases reconciled between both sides: what was sent, what was seen, and what cannot be true."""

import pytest

from learner.serving.leases import Lease, SlotTable
from learner.serving.ledger import ALWAYS, Reconciliation, residues
from seedrl.wire.seedrl_pb2 import Sent

_ROWS = 3


def _ended_lease(*seen: int) -> tuple[Lease, Reconciliation]:
    """A lease of groups of three rows, of each of which N steps have arrived; it has ended."""
    table = SlotTable(training=_ROWS * len(seen), evaluation=0, seed=5)
    lease = table.lease(_ROWS * len(seen), len(seen), "host:7")
    for group, steps in zip(lease.groups, seen, strict=True):
        group.seen = steps
    reconciliation = Reconciliation()
    reconciliation.ended(lease)
    return lease, reconciliation


def _sent(lease: Lease, *steps: tuple[int, int]) -> list[Sent]:
    return [
        Sent(lease=lease.key, group=group, num_envs=_ROWS, steps=sent, answered=answered)
        for group, (sent, answered) in enumerate(steps)
    ]


def test_a_lease_is_reconciled_once() -> None:
    lease, reconciliation = _ended_lease(5, 2)
    assert reconciliation.num_unreported == 1
    for _ in range(2):  # the Assign that confirmed the report was lost
        assert reconciliation.reported(_sent(lease, (6, 5), (2, 2))) == []
        expected = {"sent": 8 * _ROWS, "seen": 7 * _ROWS, "lost": _ROWS}
        assert reconciliation.accounts == expected
    assert reconciliation.num_unreported == 0
    assert residues(reconciliation.accounts, ALWAYS) == []


@pytest.mark.parametrize(
    ("seen", "steps", "answered"),
    [(4, 3, 3), (2, 3, 3), (2, 4, 2), (2, 2, 3), (5, 2**64 - 1, 0)],
)
def test_a_count_that_cannot_be_true_is_disputed(seen: int, steps: int, answered: int) -> None:
    lease, reconciliation = _ended_lease(seen)
    report = _sent(lease, (steps, answered))
    (line,) = reconciliation.reported(report)
    assert "host:7: group 0" in line and str(steps) in line
    assert reconciliation.accounts == {"disputed": seen * _ROWS}
    # Once: a connection that repeats the report is not ended for it for ever.
    assert reconciliation.reported(report) == []
    reconciliation.late(lease.groups[0])
    assert reconciliation.accounts == {"disputed": seen * _ROWS}


@pytest.mark.parametrize(
    ("numbers", "size"),
    [
        ([0, 1, 2], _ROWS),
        ([0, 0, 1], _ROWS),
        ([2**32 - 1], _ROWS),
        ([0, 1], _ROWS - 1),
        ([0], _ROWS),
    ],
)
def test_groups_that_the_lease_does_not_have_are_disputed(numbers: list[int], size: int) -> None:
    lease, reconciliation = _ended_lease(1, 1)
    report = [
        Sent(lease=lease.key, group=number, num_envs=size, steps=1, answered=1)
        for number in numbers
    ]
    assert len(reconciliation.reported(report)) == 1
    assert reconciliation.accounts == {"disputed": 2 * _ROWS}


def test_a_step_that_arrives_after_the_report_was_not_lost() -> None:
    lease, reconciliation = _ended_lease(1)
    (group,) = lease.groups
    reconciliation.reported(_sent(lease, (2, 1)))
    assert reconciliation.accounts["lost"] == _ROWS
    group.seen += 1
    reconciliation.late(group)
    assert +reconciliation.accounts == {"sent": 2 * _ROWS, "seen": 2 * _ROWS}
    # It has reported that there are no more.
    group.seen += 1
    reconciliation.late(group)
    expected = {"sent": 2 * _ROWS, "seen": 2 * _ROWS, "disputed": _ROWS}
    assert +reconciliation.accounts == expected


def test_leases_that_are_never_reported_are_given_up_in_the_end() -> None:
    reconciliation = Reconciliation()
    table = SlotTable(training=1, evaluation=0, seed=0)
    for _ in range(4100):
        lease = table.lease(1, 1, "peer")
        lease.groups[0].seen = 2
        table.end(lease)
        reconciliation.ended(lease)
    assert reconciliation.accounts == {"unsettled": 4 * 2}


def test_a_sum_that_does_not_balance_names_its_accounts() -> None:
    equation = ("in", "restored"), ("kept", "lost")
    assert residues({"in": 7, "kept": 4, "lost": 3}, [equation]) == []
    (line,) = residues({"in": 7, "restored": 1, "kept": 5}, [equation])
    assert all(text in line for text in ("in 7", "restored 1", "kept 5", "lost 0", "residue 3"))
