import random
from itertools import chain
from typing import get_args

import numpy as np
import pytest

from learner.serving.leases import (
    Lease,
    NoFreeSlotError,
    Role,
    SlotTable,
    deal,
    environment_seed,
    ranges_of,
    session_seed,
)


def _table(training: int, evaluation: int) -> SlotTable:
    return SlotTable(training=training, evaluation=evaluation, seed=0)


def _slots(lease: Lease) -> list[list[int]]:
    return [group.slots.tolist() for group in lease.groups]


def _counts(lease: Lease) -> list[int]:
    """Training and evaluation slots."""
    return [
        sum(len(group.slots) for group in lease.groups if group.role == role)
        for role in get_args(Role)
    ]


@pytest.mark.parametrize("num_groups", [0, 1, 5, 2**32 - 1])
def test_no_group_is_empty_whatever_number_is_asked_for(num_groups: int) -> None:
    lease = _table(3, 0).lease(3, num_groups, "peer")
    assert len(lease.groups) == min(max(num_groups, 1), 3)
    assert sorted(chain(*_slots(lease))) == [0, 1, 2]


def test_slots_of_a_dispatched_group_are_leased_again_only_after_its_return() -> None:
    table = _table(4, 0)
    lease = table.lease(4, 2, "peer")
    lease.groups[0].dispatched = True
    table.end(lease)
    assert table.num_free == 2
    # A lease never grows: better a whole one in a moment than two slots now.
    with pytest.raises(NoFreeSlotError):
        table.lease(4, 1, "peer")
    again = table.lease(2, 1, "peer")
    assert (_slots(again), again.num_missing) == ([[2, 3]], 0)
    table.release(lease.groups[0])
    assert table.num_free == 2
    partial = table.lease(4, 1, "peer")
    assert (_slots(partial), partial.num_missing) == ([[0, 1]], 2)


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


@pytest.mark.parametrize(
    ("sizes", "offered", "expected"),
    [
        # Each has its part of both, and at least one of two environments or more evaluates.
        ((32, 100), [66, 66], [(16, 50), (16, 50)]),
        ((32, 100), [32, 32, 32], [(8, 24), (8, 24), (8, 24)]),
        ((64, 8), [18] * 4, [(16, 2)] * 4),
        ((9, 2), [4] * 3, [(3, 1), (3, 1), (3, 0)]),
        ((32, 1), [2], [(1, 1)]),
        # A single environment trains, or evaluates if others train and none evaluates.
        ((3, 2), [1] * 4, [(1, 0), (0, 1), (1, 0), (1, 0)]),
        # What one role lacks, the other makes up for; more than all slots are not given.
        ((2, 8), [6, 6], [(2, 4), (0, 4)]),
        ((4, 2), [500], [(4, 2)]),
        ((3, 0), [2], [(2, 0)]),
        ((0, 3), [2], [(0, 2)]),
    ],
)
def test_each_env_server_gets_its_part_of_training_and_evaluation(
    sizes: tuple[int, int], offered: list[int], expected: list[tuple[int, int]]
) -> None:
    table = _table(*sizes)
    assert [tuple(_counts(table.lease(number, 1, "peer"))) for number in offered] == expected


@pytest.mark.parametrize(
    ("free", "offered", "num_groups", "expected"),
    [
        # A group has one range: of two groups each goes to the emptiest there is.
        ([8, 8, 8, 8, 0], 8, 2, [4, 4, 0, 0, 0]),
        ([4, 4, 8, 8, 0], 8, 2, [0, 0, 4, 4, 0]),
        # One that has more than its groups' ranges hold takes others, too.
        ([8, 8, 8, 8, 0], 32, 2, [8, 8, 8, 8, 0]),
        ([8, 8, 8, 8, 0], 6, 1, [6, 0, 0, 0, 0]),
        # What is left is given away whatever the groups.
        ([1, 0, 2, 1, 0], 8, 2, [1, 0, 2, 1, 0]),
        # One environment evaluates, as on one device.
        ([8, 8, 8, 8, 4], 8, 2, [4, 3, 0, 0, 1]),
    ],
)
def test_groups_of_an_env_server_are_spread_over_devices(
    free: list[int], offered: int, num_groups: int, expected: list[int]
) -> None:
    ranges = ranges_of(32, 4, num_devices=4)
    assert deal(free, offered, ranges, num_groups=num_groups) == expected


def _ready(table: SlotTable, num_envs: int) -> Lease:
    lease = table.lease(num_envs, 1, "peer")
    lease.is_ready = True
    return lease


def test_returning_ends_with_no_slot_idle_that_an_environment_could_fill() -> None:
    numbers = random.Random(3)
    for _ in range(500):
        training, evaluation = numbers.randint(0, 12), numbers.randint(0, 4)
        table = _table(training, evaluation)
        offers: dict[int, int] = {}
        for _ in range(numbers.randint(1, 12)):
            if offers and numbers.random() < 0.4:
                table.end(table.leases[number := numbers.choice(list(offers))])
                del offers[number]
            elif table.num_free:
                size = numbers.randint(1, 6)
                offers[_ready(table, size).number] = size
        for _ in range(30):
            if (lease := table.returning()) is None:
                break
            table.end(lease)
            size = offers.pop(lease.number)
            offers[_ready(table, size).number] = size
        assert table.returning() is None
        counts = np.sum([_counts(lease) for lease in table.leases.values()] or [[0, 0]], axis=0)
        offered = sum(offers.values())
        assert counts.sum() == min(offered, training + evaluation)
        if offered > 1 and training and evaluation:
            assert counts.all()
        # A single environment that is left trains: to evaluate alone would never end.
        assert counts[0] or not (offered and training)


def test_the_seed_of_a_slot_and_epoch_is_the_same_on_every_machine() -> None:
    # First four bytes of SHA-256 of b"1/2/3", little-endian, without the lowest bit.
    assert environment_seed(1, 2, 3) == 1470002382
    assert session_seed(3, "session 1") != session_seed(4, "session 1")
