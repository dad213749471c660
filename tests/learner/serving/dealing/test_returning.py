"""Who shall return: something is trained and something measured, whoever is there."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learner.serving.dealing import returning
from learner.serving.dealing.returning import Patience, could_do_better, could_grow
from learner.serving.dealing.spread import spread
from learner.serving.leases import Lease, NoFreeSlotError, SlotTable
from learner.serving.slot_deal import deal


def _table(training: int = 32, evaluation: int = 100, **others: int | None) -> SlotTable:
    return SlotTable(
        training=training,
        evaluation=evaluation,
        seed=0,
        order=spread,
        **others,  # type: ignore[arg-type]
    )


def _join(table: SlotTable, num_envs: int) -> Lease:
    lease = table.lease(num_envs, 2, "peer")
    lease.is_ready = True
    return lease


def _counts(lease: Lease) -> tuple[int, int]:
    sizes = {"training": 0, "evaluation": 0}
    for group in lease.groups:
        sizes[group.role] += len(group.slots)
    return sizes["training"], sizes["evaluation"]


def _return(table: SlotTable, lease: Lease) -> Lease:
    num_envs = sum(_counts(lease)) + lease.num_missing
    table.end(lease)
    return _join(table, num_envs)


def test_where_who_trained_has_left_who_only_measured_trains() -> None:
    table = _table()
    first, second, third = (_join(table, 32) for _ in range(3))
    assert [_counts(lease) for lease in (first, second, third)] == [(31, 1), (1, 31), (0, 32)]
    assert could_do_better(table) is None
    table.end(first)
    # 31 of its environments would begin to train, of the other one's 30.
    assert could_do_better(table) is third
    assert _counts(_return(table, third)) == (31, 1)
    assert could_do_better(table) is None


def test_where_who_measured_has_left_the_smallest_measures() -> None:
    table = _table(training=64, evaluation=2)
    measures, large, small = (_join(table, number) for number in (4, 16, 8))
    assert [_counts(lease) for lease in (measures, large, small)] == [(3, 1), (15, 1), (8, 0)]
    table.end(large)
    assert could_do_better(table) is None  # one measures yet
    table.end(measures)
    other = _join(table, 1)
    assert (_counts(other), could_do_better(table)) == ((0, 1), None)
    table.end(other)
    assert could_do_better(table) is small
    assert _counts(_return(table, small)) == (7, 1)
    assert could_do_better(table) is None


def test_of_env_servers_of_one_environment_one_measures() -> None:
    table = _table(training=256, evaluation=8)
    leases = [_join(table, 1) for _ in range(200)]
    counts = [_counts(lease) for lease in leases]
    assert counts == [(1, 0), (0, 1), *[(1, 0)] * 198]
    table.end(leases[1])
    chosen = could_do_better(table)
    assert chosen is not None
    assert _counts(_return(table, chosen)) == (0, 1)
    assert could_do_better(table) is None


def test_where_few_of_many_measure_others_begin_to_one_by_one() -> None:
    table = _table(training=64, evaluation=8)
    leases = [_join(table, 4) for _ in range(12)]
    assert [_counts(lease) for lease in leases] == [(3, 1)] * 8 + [(4, 0)] * 4
    for lease in leases[:6]:
        table.end(lease)
    assert could_do_better(table) is None  # two of eight measure yet
    table.end(leases[6])
    chosen = could_do_better(table)
    assert chosen is leases[8]
    assert _counts(_return(table, chosen)) == (3, 1)
    assert could_do_better(table) is None


def test_env_servers_that_hold_alike_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    table = _table(training=400, evaluation=8)
    for _ in range(200):
        _join(table, 1)
    asked: list[Sequence[int]] = []

    def counted(free: Sequence[int], *others: Any, **named: Any) -> list[int]:
        asked.append(free)
        return deal(free, *others, **named)

    monkeypatch.setattr(returning, "deal", counted)
    assert could_do_better(table) is None
    assert asked == [[202, 7], [201, 8]]  # one that trains, and the one that measures


def test_a_single_environment_trains_and_nobody_is_called_back() -> None:
    table = _table(training=4, evaluation=2)
    _join(table, 1)
    assert could_do_better(table) is None


def test_a_few_slots_are_not_worth_the_streams_of_a_large_env_server() -> None:
    table = _table(training=40, evaluation=40)
    small, large = _join(table, 5), _join(table, 41)
    assert [_counts(lease) for lease in (small, large)] == [(4, 1), (36, 5)]
    table.end(small)  # 4 more of 41, and of 40 that train
    assert could_do_better(table) is None


def test_who_is_not_ready_is_not_called_back() -> None:
    table = _table()
    first, second = _join(table, 32), _join(table, 32)
    table.end(first)
    second.is_ready = False
    assert could_do_better(table) is None


def test_env_servers_that_share_all_slots_keep_their_shares() -> None:
    table = _table(num_env_servers=4)
    leases = [_join(table, 33) for _ in range(4)]
    for lease in leases[:3]:
        table.end(lease)
        assert could_do_better(table) is None


def test_nobody_is_called_back_for_what_passes() -> None:
    table, patience = _table(), Patience(10.0)
    first, second = _join(table, 32), _join(table, 32)
    assert patience.look(table, 0.0) is None
    table.end(first)
    assert patience.look(table, 1.0) is None
    again = _join(table, 32)  # it was merely started again
    assert patience.look(table, 20.0) is None
    table.end(again)
    assert [patience.look(table, now) for now in (21.0, 30.0)] == [None, None]
    assert patience.look(table, 31.0) is second
    # It has not gone yet, or others are needed too: again only after as long.
    assert [patience.look(table, now) for now in (32.0, 41.0)] == [None, None]
    assert patience.look(table, 41.9) is None  # it looks once a second
    assert patience.look(table, 42.0) is second


def _settle(table: SlotTable) -> None:
    """All return who shall; that must end."""
    for _ in range(3 * len(table.leases) + 3):
        lease = could_grow(table) or could_do_better(table)
        if lease is None:
            return
        _return(table, lease)
    raise AssertionError("env servers are called back for ever")


@given(
    st.integers(1, 40),
    st.integers(0, 12),
    st.integers(1, 4),
    st.lists(st.tuples(st.booleans(), st.integers(0, 199), st.integers(1, 60)), max_size=40),
)
def test_something_trains_and_something_measures_whoever_joins_and_leaves(
    training: int, evaluation: int, devices: int, changes: list[tuple[bool, int, int]]
) -> None:
    table = _table(training, evaluation, num_devices=min(devices, training))
    turned_away = 0
    for is_join, number, num_envs in changes:
        if is_join:
            try:
                _join(table, num_envs)
            except NoFreeSlotError:
                turned_away += 1
                assert table.num_free == 0
        elif table.leases:
            table.end(list(table.leases.values())[number % len(table.leases)])
        _settle(table)
        leases = table.leases.values()
        taken = [slot for lease in leases for group in lease.groups for slot in group.slots]
        assert len(taken) == len(set(taken)) == table.num_slots - table.num_free
        trains, measures = (sum(_counts(lease)[role] for lease in leases) for role in (0, 1))
        offered = sum(sum(_counts(lease)) + lease.num_missing for lease in leases)
        assert trains + measures == min(offered, table.num_slots)
        assert trains >= min(1, offered)
        assert measures >= min(evaluation, offered - 1, 1)
        # At least three quarters of the slots that could train do.
        possible = min(training, offered - (evaluation > 0) * len(leases))
        assert trains >= possible - possible / 4 * len(leases)
