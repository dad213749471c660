from itertools import chain
from typing import get_args

import numpy as np
import pytest

from learner.serving.dealing.spread import spread
from learner.serving.environment_seeds import environment_seed, session_seed
from learner.serving.leases import Lease, NoFreeSlotError, SlotTable
from learner.serving.slot_deal import Role
from seedrl.types import StepType


def _table(training: int = 32, evaluation: int = 12, *, seed: int = 0) -> SlotTable:
    return SlotTable(training=training, evaluation=evaluation, seed=seed)


def _slots(lease: Lease) -> list[list[int]]:
    return [group.slots.tolist() for group in lease.groups]


def _counts(lease: Lease) -> list[int]:
    """Training and evaluation slots."""
    return [
        sum(len(group.slots) for group in lease.groups if group.role == role)
        for role in get_args(Role)
    ]


def test_training_slots_are_leased_first_and_evaluation_is_not_forgotten() -> None:
    table = _table(32, 100)
    assert [_counts(table.lease(32, 1, "peer")) for _ in range(3)] == [[31, 1], [1, 31], [0, 32]]


@pytest.mark.parametrize(("num_servers", "training", "evaluation"), [(2, 32, 12), (4, 8, 4)])
def test_env_servers_that_share_all_slots_get_the_same_of_each_role(
    num_servers: int, training: int, evaluation: int
) -> None:
    table = SlotTable(training=training, evaluation=evaluation, seed=0, num_env_servers=num_servers)
    leases = [
        table.lease((training + evaluation) // num_servers, 1, "peer") for _ in range(num_servers)
    ]
    for lease in leases:
        assert _counts(lease) == [training // num_servers, evaluation // num_servers]
    assert table.num_free == 0
    # One that returns has its share again, whoever else is there.
    table.end(leases[1])
    assert _counts(table.lease(100, 1, "peer")) == _counts(leases[1])


def test_training_slots_are_split_into_the_groups_asked_for() -> None:
    lease = _table(7, 0).lease(7, 3, "peer")
    assert _slots(lease) == [[0, 1, 2], [3, 4], [5, 6]]
    assert [group.number for group in lease.groups] == [0, 1, 2]
    assert [group.role for group in lease.groups] == ["training"] * 3


def test_evaluation_slots_form_one_group_after_the_training_groups() -> None:
    lease = _table(4, 2).lease(6, 2, "peer")
    assert _slots(lease) == [[0, 1], [2, 3], [4, 5]]
    assert [group.role for group in lease.groups] == ["training", "training", "evaluation"]


def test_a_lease_of_evaluation_slots_only_is_one_group() -> None:
    lease = _table(0, 3).lease(3, 2, "peer")
    assert _slots(lease) == [[0, 1, 2]]
    assert lease.groups[0].role == "evaluation"


@pytest.mark.parametrize("num_groups", [0, 1, 5, 2**32 - 1])
def test_no_group_is_empty_whatever_number_is_asked_for(num_groups: int) -> None:
    lease = _table(3, 0).lease(3, num_groups, "peer")
    assert len(lease.groups) == min(max(num_groups, 1), 3)
    assert sorted(chain(*_slots(lease))) == [0, 1, 2]


def test_a_lease_takes_no_more_than_is_free_and_then_there_is_none() -> None:
    table = _table(3, 1)
    first = table.lease(3, 1, "peer")
    second = table.lease(100, 1, "peer")
    assert sorted(chain(*_slots(first), *_slots(second))) == [0, 1, 2, 3]
    with pytest.raises(NoFreeSlotError, match="all 4 slots are leased"):
        table.lease(1, 1, "peer")


def test_slots_of_a_dispatched_group_are_leased_again_only_after_its_return() -> None:
    table = _table(4, 0)
    lease = table.lease(4, 2, "peer")
    lease.groups[0].dispatched = True
    table.end(lease)
    assert table.num_free == 2
    # A lease never grows: better a whole one in a moment than two slots now.
    with pytest.raises(NoFreeSlotError, match="2 slots are about to be freed"):
        table.lease(4, 1, "peer")
    again = table.lease(2, 1, "peer")
    assert (_slots(again), again.num_missing) == ([[2, 3]], 0)
    table.release(lease.groups[0])
    assert table.num_free == 2
    partial = table.lease(4, 1, "peer")
    assert (_slots(partial), partial.num_missing) == ([[0, 1]], 2)


def test_no_two_leases_have_one_key_not_even_those_of_two_sessions() -> None:
    tables = [SlotTable(training=2, evaluation=0, seed=seed) for seed in (0, 1, 2**31 - 1)]
    keys = {table.lease(1, 1, "peer").key for table in tables for _ in range(2)}
    assert len(keys) == 6
    assert 0 < min(keys) < max(keys) < 2**64


def test_sessions_of_one_seed_give_the_same_seeds_and_other_keys() -> None:
    one, other = (_table(4, 0, seed=7) for _ in range(2))
    leases = [table.lease(4, 1, "peer") for table in (one, other)]
    seeds = [
        table.seeds(lease.groups[0]) for table, lease in zip((one, other), leases, strict=True)
    ]
    assert seeds[0] == seeds[1] == [environment_seed(7, slot, 1) for slot in range(4)]
    assert leases[0].key != leases[1].key


def test_a_key_is_never_the_number_that_means_no_lease() -> None:
    table = SlotTable(training=1, evaluation=0, seed=0, new_key=lambda: 0)
    assert table.lease(1, 1, "peer").key == 1


def test_the_lowest_free_slots_are_leased_whatever_the_order_of_leaving() -> None:
    table = _table(8, 4)
    leases = [table.lease(3, 1, "peer") for _ in range(4)]
    assert [_slots(lease) for lease in leases] == [
        [[0, 1], [8]],
        [[2, 3], [9]],
        [[4, 5], [10]],
        [[6, 7], [11]],
    ]
    for lease in [leases[2], leases[0], leases[3]]:
        table.end(lease)
    assert _slots(table.lease(4, 1, "peer")) == [[0, 1, 4], [8]]
    assert _slots(table.lease(5, 1, "peer")) == [[5, 6, 7], [10, 11]]


def test_slots_are_given_away_in_the_order_asked_for_whatever_the_order_of_leaving() -> None:
    table = SlotTable(training=8, evaluation=2, seed=0, order=spread)
    first, second = table.lease(4, 1, "peer"), table.lease(3, 2, "peer")
    # In the order 0, 5, 2, 7, 4, 1, 6, 3; within a group ascending.
    assert [_slots(first), _slots(second)] == [[[0, 2, 5], [8]], [[7], [4], [9]]]
    table.end(first)
    table.end(second)
    assert _slots(table.lease(5, 1, "peer")) == [[0, 2, 5, 7], [8]]


def _lease_and_end(table: SlotTable) -> tuple[list[int], list[int]]:
    lease = table.lease(table.num_slots, 2, "peer")
    seeds = [seed for group in lease.groups for seed in table.seeds(group)]
    streams = [int(stream) for group in lease.groups for stream in group.streams]
    table.end(lease)
    return seeds, streams


def test_seeds_and_streams_are_never_given_twice() -> None:
    table = _table(5, 2)
    seeds, streams = zip(*(_lease_and_end(table) for _ in range(20)), strict=True)
    assert len(set(chain(*seeds))) == 20 * 7
    assert len(set(chain(*streams))) == 20 * 7
    assert all(0 <= seed < 2**31 for seed in chain(*seeds))
    assert all(stream >= 0 for stream in chain(*streams))


def test_seeds_depend_on_the_run_seed_and_on_nothing_else() -> None:
    first, again, other = (_lease_and_end(_table(5, 2, seed=seed)) for seed in (7, 7, 8))
    assert first == again
    assert not set(first[0]) & set(other[0])


def test_sessions_of_one_run_share_no_seed() -> None:
    tables = [
        SlotTable(training=3, evaluation=1, seed=session_seed(0, f"session {number}"))
        for number in (1, 2, 3)
    ]
    seeds = [seed for table in tables for seed in _lease_and_end(table)[0]]
    assert len(seeds) == len(set(seeds)) == 12


def test_a_new_lease_starts_a_page_and_an_episode() -> None:
    table = _table(3, 0)
    lease = table.lease(3, 1, "peer")
    table.rows[:] = 5
    table.acted_step_type[:] = StepType.MID
    table.end(lease)
    (group,) = table.lease(2, 1, "peer").groups
    np.testing.assert_array_equal(table.rows, [0, 0, 5])
    assert group.last_step_type == bytes([StepType.LAST, StepType.LAST])


@pytest.mark.parametrize(
    ("num_env_servers", "reservable"),
    [(None, [16, 8, 4, 2, 1, 1]), (4, [16, 8, 8]), (1, [32])],
)
def test_before_it_is_ready_an_env_server_has_its_share_or_half_of_the_free(
    num_env_servers: int | None, reservable: list[int]
) -> None:
    table = SlotTable(training=24, evaluation=8, seed=0, num_env_servers=num_env_servers)
    leases = []
    for most in reservable:
        assert table.num_reservable == most
        leases.append(table.lease(2**32 - 1, 1, "greedy", most=most))
    assert [sum(len(group.slots) for group in lease.groups) for lease in leases] == reservable
    assert not table.num_free
    assert [lease.is_held_back for lease in leases] == [*(True for _ in leases[1:]), False]
