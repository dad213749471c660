"""In which order slots are given away, so that those in use are spread over all of them."""

import functools
import math
from collections.abc import Callable, Sequence

from learner.serving.slot_deal import SlotRange

# Of all lanes: for each its slots, in the order in which they are given away.
Order = Callable[[Sequence[SlotRange]], list[list[int]]]


def ascending(lanes: Sequence[SlotRange]) -> list[list[int]]:
    """The lowest slots first: for runs that wait for all slots anyway."""
    return [list(lane.slots) for lane in lanes]


def spread(lanes: Sequence[SlotRange]) -> list[list[int]]:
    """Training slots far from each other first; evaluation slots, which are all alike, ascending.

    What a training slot explores with follows from its number. So with the first k slots of N, and
    with any k that follow each other in this order (one env server's, and all the others' after
    others have left), all degrees of exploration are there: no gap is wider than 2.5 times that of
    k slots at equal distances (computed for all k, and all N up to 420 and some up to 4,096). Of
    several lanes each begins elsewhere.
    """
    orders = []
    training = [lane for lane in lanes if lane.role == "training"]
    for number, lane in enumerate(lanes):
        slots: Sequence[int] = lane.slots
        if lane.role == "training" and lane.size:
            first, step = number * lane.size // len(training), stride(lane.size)
            slots = [slots[(first + turn * step) % lane.size] for turn in range(lane.size)]
        orders.append(list(slots))
    return orders


@functools.cache
def stride(size: int) -> int:
    """The step with which to go round `size` places, so that any part of the way is even.

    Every place is met once, since the two have no common divisor. Among such steps the largest
    term of the continued fraction of step / size says how uneven it gets (the golden section,
    whose terms are 1, is the most even); of equal ones the nearest to the golden section.

    No common divisor is also what gives each of the devices that learn, whose number divides
    `size`, as many slots of any part of the way as the others but for one.
    """
    golden = size * (math.sqrt(5) - 1) / 2
    steps = (step for step in range(1, size + 1) if math.gcd(step, size) == 1)
    return min(steps, key=lambda step: (_largest_term(step, size), abs(step - golden)))


def _largest_term(numerator: int, denominator: int) -> int:
    largest = 0
    while numerator:
        largest = max(largest, denominator // numerator)
        numerator, denominator = denominator % numerator, numerator
    return largest
