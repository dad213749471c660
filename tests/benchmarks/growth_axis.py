"""A size that grows, and what each unit of work costs and keeps in memory as it does."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from learner.bench.measure.interleave import Pace, interleave, ratios, spread
from learner.bench.measure.result import Conditions, Result

# What "no more than before" allows a busy machine.
TOLERANCE = 1.25


class Axis(NamedTuple):
    """What grows.

    Attributes:
      name: of the figure, and what is counted.
      unit: in which the cost of a unit of work is given.
      conditions: what all sizes are measured with.
    """

    name: str
    unit: str
    conditions: Conditions


def results(
    axis: Axis, costs: Mapping[int, tuple[float, ...]], **details: float
) -> Iterator[Result]:
    """A result for each size but the smallest; the limit is the cost with the size before.

    A ratio of 1 is linear growth of the whole: the cost of a unit has stayed the same. The smallest
    size would be a weaker limit: what a run costs whatever its size is shared by few units there.

    Args:
      axis: see there.
      costs: of a unit of work by size, one number a round.
      details: further numbers for all results.
    """
    sizes = sorted(costs)
    for before, size in itertools.pairwise(sizes):
        yield Result(
            name=f"growth: {axis.name}, {size:,}",
            unit=axis.unit,
            limit_name=f"with {before:,}",
            ours=costs[size],
            limits=costs[before],
            target=TOLERANCE,
            is_cost=True,
            conditions=axis.conditions,
            details={
                "size": size,
                "size before": before,
                f"ratio to {sizes[0]:,}": spread(ratios(costs[size], costs[sizes[0]])).median,
                **details,
            },
        )


def interleaved(
    seconds_of: Mapping[int, Callable[[], float]], pace: Pace
) -> dict[int, tuple[float, ...]]:
    """Microseconds of a unit of work by size, interleaved; `seconds_of` gives its seconds."""
    measured = interleave({str(size): work for size, work in seconds_of.items()}, pace.rounds)
    return {size: tuple(1e6 * each for each in measured[str(size)]) for size in seconds_of}
