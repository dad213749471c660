"""The order in which slots are given away: those in use are spread, whoever has come or gone."""

import bisect
import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learner.serving.dealing.spread import ascending, spread, stride
from learner.serving.leases import SlotTable
from learner.serving.slot_deal import lanes_of
from seedrl.rl.exploration import epsilons


def worst_gap(order: Sequence[int], size: int) -> float:
    """The widest gap, going round, of any first k slots, in gaps of k at equal distances."""
    taken: list[int] = []
    worst = 0.0
    for slot in order:
        bisect.insort(taken, slot)
        if len(taken) > 1:
            gaps = np.diff([*taken, taken[0] + size])
            worst = max(worst, gaps.max() / math.ceil(size / len(taken)))
    return worst


def test_training_slots_far_from_each_other_are_given_away_first() -> None:
    assert spread(lanes_of(8, 3)) == [[0, 5, 2, 7, 4, 1, 6, 3], [8, 9, 10]]
    assert ascending(lanes_of(4, 2)) == [[0, 1, 2, 3], [4, 5]]
    # A single environment explores most, as with `epsilons(1)`.
    assert spread(lanes_of(256, 0))[0][0] == 0


@given(st.integers(0, 400), st.integers(0, 20), st.integers(1, 9))
def test_every_slot_is_given_away_once(training: int, evaluation: int, devices: int) -> None:
    lanes = lanes_of(training, evaluation, devices)
    assert [sorted(own) for own in spread(lanes)] == [list(lane.slots) for lane in lanes]


@pytest.mark.parametrize("size", [*range(2, 70), 100, 120, 150, 200, 210, 256, 360])
def test_the_first_slots_leave_no_wide_gap_whatever_their_number(size: int) -> None:
    (order, _) = spread(lanes_of(size, 0))
    assert worst_gap(order, size) <= 2.5
    # That is what the lowest slots do not do.
    assert size < 16 or worst_gap(range(size), size) > 3


@given(st.integers(2, 8), st.integers(4, 40))
def test_lanes_that_fill_up_alike_do_not_share_their_gaps(devices: int, size: int) -> None:
    lanes = lanes_of(devices * size, 0, devices)
    by_turns = [slot for taken in zip(*spread(lanes)[:-1], strict=True) for slot in taken]
    assert worst_gap(by_turns, devices * size) <= 6.0


@given(st.data(), st.integers(1, 8), st.integers(1, 30))
def test_any_slots_that_follow_each_other_are_of_all_shards_alike(
    data: st.DataObject, num_shards: int, rounds: int
) -> None:
    size = num_shards * rounds
    (order, _) = spread(lanes_of(size, 0))
    length = num_shards * data.draw(st.integers(1, rounds))
    start = data.draw(st.integers(0, size - length))
    counts = Counter(slot % num_shards for slot in order[start : start + length])
    assert set(counts.values()) == {length // num_shards}


@pytest.mark.parametrize("size", [1, 2, 6, 97, 360, 10_000])
def test_a_stride_meets_every_place(size: int) -> None:
    assert math.gcd(stride(size), size) == 1


def exponents(table: SlotTable) -> np.ndarray:
    """Of 0.4, for each training slot that is leased; the ladder's go from 1 to 8."""
    ladder = np.log(epsilons(table.num_training)) / np.log(0.4)
    groups = [group.slots for group in table.holding() if group.role == "training"]
    values: np.ndarray = ladder[np.concatenate([np.empty(0, np.int32), *groups])]
    return values


def unevenness(values: np.ndarray) -> float:
    """How far the share of values below any bound is from that of the whole ladder, at most."""
    expected = (np.sort(values) - 1) / 7
    number = len(values)
    above = np.arange(1, number + 1) / number - expected
    below = expected - np.arange(number) / number
    return float(max(above.max(), below.max()))


@given(st.data(), st.sampled_from([64, 200, 256]), st.sampled_from([1, 2, 4]))
def test_epsilons_are_spread_over_the_env_servers_present_whoever_joins_and_leaves(
    data: st.DataObject, training: int, devices: int
) -> None:
    """Each alone has all degrees of exploration, so those who stay have them, too."""
    size = 16
    table = SlotTable(training=training, evaluation=0, seed=0, num_devices=devices, order=spread)
    for is_join in data.draw(st.lists(st.booleans(), min_size=1, max_size=60)):
        if is_join and table.num_free >= size:
            table.lease(size, 1, "peer")
        elif table.leases:
            table.end(table.leases[data.draw(st.sampled_from(sorted(table.leases)))])
        if table.leases:
            # A lease of the last slots of a device has others' as well, and is less even.
            assert unevenness(exponents(table)) < 0.2
    for lease in [*table.leases.values()][1:]:
        table.end(lease)


@pytest.mark.parametrize("num_env_servers", [1, 2, 7, 50, 200])
def test_with_env_servers_of_one_environment_all_degrees_are_there_too(
    num_env_servers: int,
) -> None:
    table = SlotTable(training=256, evaluation=0, seed=0, order=spread)
    leases = [table.lease(1, 1, "peer") for _ in range(num_env_servers)]
    assert unevenness(exponents(table)) <= max(0.1, 1.4 / num_env_servers)
    # Those of the highest degrees leave; who joins next takes their places.
    low = sorted(leases, key=lambda lease: int(lease.groups[0].slots[0]))[: num_env_servers // 2]
    for lease in low:
        table.end(lease)
    for _ in low:
        table.lease(1, 1, "peer")
    assert unevenness(exponents(table)) <= max(0.1, 1.4 / num_env_servers)


def test_the_lowest_slots_would_explore_and_do_nothing_else() -> None:
    """What was so before: with 16 of 256 slots no epsilon was below 0.26."""
    means = []
    for order in (ascending, spread):
        table = SlotTable(training=256, evaluation=0, seed=0, order=order)
        table.lease(16, 2, "peer")
        means.append(float(np.mean(0.4 ** exponents(table))))
    np.testing.assert_allclose(means, [0.333, 0.072], atol=0.002)
    np.testing.assert_allclose(np.mean(epsilons(256)), 0.0626, atol=0.0005)


def test_each_group_of_an_env_server_is_spread() -> None:
    table = SlotTable(training=256, evaluation=0, seed=0, order=spread)
    lease = table.lease(32, 2, "peer")
    for group in lease.groups:
        assert group.slots.tolist() == sorted(group.slots.tolist())
        assert np.diff(group.slots).max() <= 3 * 256 / 16
