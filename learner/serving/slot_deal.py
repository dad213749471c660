"""Which slots an env server gets: training first, and evaluation what was configured."""

import itertools
from collections.abc import Sequence
from typing import Literal, NamedTuple

Role = Literal["training", "evaluation"]


class SlotRange(NamedTuple):
    """The slots of a lane: `first`, and every `step`-th that follows, `size` of them.

    Attributes:
      device: the inference device, by its number, that acts for them.
    """

    role: Role
    first: int
    size: int
    step: int = 1
    device: int = 0

    @property
    def slots(self) -> range:
        """All of them."""
        return range(self.first, self.first + self.size * self.step, self.step)


def lanes_of(training: int, evaluation: int, num_devices: int = 1) -> tuple[SlotRange, ...]:
    """The lanes of N training slots, 0 to N - 1, and of the evaluation slots that follow them.

    Training slot s is acted for by device s modulo n, so every device has slots of all degrees of
    exploration, and as many as the others but for one. The first one evaluates.
    """
    numbers = range(num_devices)
    lanes = [
        SlotRange("training", first, len(range(first, training, num_devices)), num_devices, first)
        for first in numbers
    ]
    return (*lanes, SlotRange("evaluation", training, evaluation))


def deal(
    free: Sequence[int],
    offered: int,
    lanes: Sequence[SlotRange],
    *,
    num_env_servers: int = 1,
    num_groups: int = 1,
) -> list[int]:
    """How many slots of each lane an env server gets: `min(offered, sum(free))` in all.

    Training slots are filled first. An env server of two environments or more gives at least one of
    them to evaluation, as long as a slot is free there: otherwise nothing would be measured before
    there are more env servers than training needs. So does one of a single environment where others
    train and nobody measures. Where it is known how many env servers share all
    slots, each gets its share of each role, so that none only evaluates.

    Of several lanes of a role, a group's worth at a time goes to the one with the most free slots:
    a group has one lane, since it sends one message for one batch, and lanes fill up alike.

    Args:
      free: slots of each lane that are not leased.
      offered: environments of the env server.
      lanes: all slots.
      num_env_servers: how many share them; 1 if that is not known.
      num_groups: groups that the env server wants to step one by one.
    """
    dealt = [0] * len(lanes)
    numbers = _of_roles(free, offered, lanes, num_env_servers)
    for role, number in numbers.items():
        own = [lane for lane, slots in enumerate(lanes) if slots.role == role]
        parts = max(1, num_groups) if role == "training" else 1
        left = number
        while left:
            lane = max(own, key=lambda lane: free[lane] - dealt[lane])
            taken = min(-(-number // parts), left, free[lane] - dealt[lane])
            dealt[lane] += taken
            left -= taken
    return dealt


def grouped(
    taken: Sequence[Sequence[int]], lanes: Sequence[SlotRange], num_groups: int
) -> list[tuple[int, Sequence[int]]]:
    """The groups of an env server: of each its lane, and which of the slots `taken` there.

    Evaluation is one group: it is not what an env server has groups for. A peer may ask for any
    number of them; none is empty.
    """
    is_training = [lane.role == "training" for lane in lanes]
    num_lanes = sum(bool(slots) and ours for slots, ours in zip(taken, is_training, strict=True))
    groups: list[tuple[int, Sequence[int]]] = []
    for lane, slots in enumerate(taken):
        parts = -(-num_groups // num_lanes) if slots and is_training[lane] else 1
        parts = max(1, min(parts, len(slots)))
        size, larger = divmod(len(slots), parts)
        ends = [size * part + min(part, larger) for part in range(parts + 1)]
        own = [slots[start:end] for start, end in itertools.pairwise(ends)]
        groups += [(lane, part) for part in own if part]
    return groups


def _of_roles(
    free: Sequence[int], offered: int, lanes: Sequence[SlotRange], num_env_servers: int
) -> dict[Role, int]:
    """How many slots of each role, see `deal`."""
    roles: tuple[Role, Role] = ("training", "evaluation")
    sizes, left_free = dict.fromkeys(roles, 0), dict.fromkeys(roles, 0)
    for lane, number in zip(lanes, free, strict=True):
        sizes[lane.role] += lane.size
        left_free[lane.role] += number
    dealt = dict.fromkeys(roles, 0)
    left = offered

    def take(role: Role, most: int) -> None:
        nonlocal left
        taken = max(0, min(most, left_free[role] - dealt[role], left))
        dealt[role] += taken
        left -= taken

    trains, measures = (sizes[role] > left_free[role] for role in roles)
    take("evaluation", int(offered > 1 or (trains and not measures)))
    for role in roles:
        take(role, -(-sizes[role] // num_env_servers) - dealt[role])
    for role in roles:
        take(role, left)
    return dealt
