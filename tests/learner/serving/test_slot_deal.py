"""Who gets which slots: worked examples, and what holds whatever is offered."""

import random

import pytest

from learner.serving.slot_deal import SlotRange, deal, lanes_of


def _lanes(*sizes: tuple[str, int]) -> list[SlotRange]:
    lanes: list[SlotRange] = []
    for role, size in sizes:
        lanes.append(SlotRange(role, sum(lane.size for lane in lanes), size))  # type: ignore[arg-type]
    return lanes


TWO = _lanes(("training", 32), ("evaluation", 100))


@pytest.mark.parametrize(
    ("free", "offered", "expected"),
    [
        # One env server of 32 trains with all but the one that measures.
        ((32, 100), 32, (31, 1)),
        # The next one fills training, and evaluates with the rest.
        ((1, 99), 32, (1, 31)),
        ((0, 68), 32, (0, 32)),
        ((0, 4), 32, (0, 4)),
        # A single environment trains as long as it can.
        ((32, 100), 1, (1, 0)),
        ((0, 100), 1, (0, 1)),
        # One of those that come alone measures, since others train, and only one.
        ((31, 100), 1, (0, 1)),
        ((31, 99), 1, (1, 0)),
        ((32, 100), 2, (1, 1)),
        # No evaluation slot is left: training takes all.
        ((20, 0), 16, (16, 0)),
        # More than there are slots.
        ((32, 100), 500, (32, 100)),
        ((0, 0), 5, (0, 0)),
    ],
)
def test_training_first_and_one_environment_that_measures(
    free: tuple[int, int], offered: int, expected: tuple[int, int]
) -> None:
    assert tuple(deal(free, offered, TWO)) == expected


@pytest.mark.parametrize(
    ("sizes", "num_env_servers", "offered", "expected"),
    [
        # 132 slots for 4 env servers of 33, as `seedrl train` starts them.
        ((32, 100), 4, 33, [(8, 25)] * 4),
        # 5 of 27 are 135: the last has 24, and some environments have no slot.
        ((32, 100), 5, 27, [(7, 20)] * 4 + [(4, 20)]),
        # Fewer than there are slots: training first, up to the fair share.
        ((32, 100), 4, 8, [(7, 1)] * 4),
        ((28, 20), 2, 24, [(14, 10)] * 2),
        ((64, 8), 4, 18, [(16, 2)] * 4),
        # Fewer evaluation slots than env servers: the first ones have one.
        ((9, 2), 3, 4, [(3, 1), (3, 1), (3, 0)]),
    ],
)
def test_env_servers_that_share_all_slots_get_a_fair_share_of_each_lane(
    sizes: tuple[int, int],
    num_env_servers: int,
    offered: int,
    expected: list[tuple[int, int]],
) -> None:
    lanes = _lanes(("training", sizes[0]), ("evaluation", sizes[1]))
    free, dealt = list(sizes), []
    for _ in range(num_env_servers):
        dealt.append(tuple(deal(free, offered, lanes, num_env_servers=num_env_servers)))
        free = [left - taken for left, taken in zip(free, dealt[-1], strict=True)]
    assert dealt == expected


def test_slots_are_dealt_to_the_devices_by_turns_and_the_first_one_evaluates() -> None:
    lanes = lanes_of(8, 3, num_devices=3)
    assert [(lane.role, lane.device, list(lane.slots)) for lane in lanes] == [
        ("training", 0, [0, 3, 6]),
        ("training", 1, [1, 4, 7]),
        ("training", 2, [2, 5]),
        ("evaluation", 0, [8, 9, 10]),
    ]
    assert lanes_of(8, 3) == (SlotRange("training", 0, 8), SlotRange("evaluation", 8, 3))


@pytest.mark.parametrize(
    ("free", "offered", "num_groups", "expected"),
    [
        # A group has one lane: of two groups each goes to the emptiest there is.
        ([8, 8, 8, 8, 0], 8, 2, [4, 4, 0, 0, 0]),
        ([4, 4, 8, 8, 0], 8, 2, [0, 0, 4, 4, 0]),
        # One that has more than its groups' lanes hold takes others, too.
        ([8, 8, 8, 8, 0], 32, 2, [8, 8, 8, 8, 0]),
        ([8, 8, 8, 8, 0], 6, 1, [6, 0, 0, 0, 0]),
        # What is left is given away whatever the groups.
        ([1, 0, 2, 1, 0], 8, 2, [1, 0, 2, 1, 0]),
        # One environment measures, as on one device.
        ([8, 8, 8, 8, 4], 8, 2, [4, 3, 0, 0, 1]),
    ],
)
def test_groups_of_an_env_server_are_spread_over_devices(
    free: list[int], offered: int, num_groups: int, expected: list[int]
) -> None:
    lanes = lanes_of(32, 4, num_devices=4)
    assert deal(free, offered, lanes, num_groups=num_groups) == expected


def test_env_servers_fill_all_devices_alike() -> None:
    lanes = lanes_of(128, 0, num_devices=8)
    free = [lane.size for lane in lanes]
    for number in range(8):
        dealt = deal(free, 16, lanes, num_groups=2)
        free = [left - taken for left, taken in zip(free, dealt, strict=True)]
        assert max(free[:8]) - min(free[:8]) == (8 if number % 4 < 3 else 0)
    assert sum(free) == 0


def test_an_env_server_gets_all_that_it_offers_or_all_that_is_free() -> None:
    numbers = random.Random(7)
    for _ in range(2000):
        sizes = [numbers.randint(0, 9) for _ in range(numbers.randint(1, 4))]
        lanes = _lanes(*((numbers.choice(["training", "evaluation"]), size) for size in sizes))
        free = [numbers.randint(0, size) for size in sizes]
        offered = numbers.randint(1, 20)
        dealt = deal(
            free,
            offered,
            lanes,
            num_env_servers=numbers.randint(1, 4),
            num_groups=numbers.randint(1, 3),
        )
        assert all(0 <= taken <= left for taken, left in zip(dealt, free, strict=True))
        assert sum(dealt) == min(offered, sum(free))
