"""Which slots an env server gets: training first, and evaluation what was configured."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

Role = Literal["training", "evaluation"]


class SlotRange(NamedTuple):
    """Consecutive slots of one role: `first`, `first + 1`, and so on, `size` of them."""

    role: Role
    first: int
    size: int


def deal(
    free: Sequence[int], offered: int, lanes: Sequence[SlotRange], num_env_servers: int = 1
) -> list[int]:
    """How many slots of each lane an env server gets: `min(offered, sum(free))` in all.

    Training slots are filled first. An env server of two environments or more gives at least one of
    them to evaluation, as long as a slot is free there: otherwise nothing would be measured before
    there are more env servers than training needs. Where it is known how many env servers share all
    slots, each gets its share of every lane, so that none only evaluates.

    Args:
      free: slots of each lane that are not leased.
      offered: environments of the env server.
      lanes: all slots.
      num_env_servers: how many share them; 1 if that is not known.
    """
    dealt = [0] * len(lanes)
    order = sorted(range(len(lanes)), key=lambda lane: lanes[lane].role == "evaluation")
    left = offered

    def take(lane: int, most: int) -> None:
        nonlocal left
        taken = max(0, min(most, free[lane] - dealt[lane], left))
        dealt[lane] += taken
        left -= taken

    kept = int(offered > 1)
    for lane in order:
        if lanes[lane].role == "evaluation":
            take(lane, kept)
            kept -= dealt[lane]
    for lane in order:
        take(lane, -(-lanes[lane].size // num_env_servers) - dealt[lane])
    for lane in order:
        take(lane, left)
    return dealt
