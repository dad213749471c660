"""Growth: what a unit of work costs as sizes grow, against the same work with the size before.

Nothing may grow faster than linearly in what it must touch: the cost of a unit of work stays. What
must read all priorities may grow as a single reading of them does.
"""

from collections.abc import Iterator

from learner.bench.measure.interleave import Pace
from learner.bench.measure.result import Result
from tests.benchmarks import growth_of_fleet, growth_of_learning, growth_of_replay


def run(pace: Pace) -> Iterator[Result]:
    """Priorities, stored frames, sequence lengths, devices, environments and env servers."""
    for module in (growth_of_replay, growth_of_learning, growth_of_fleet):
        yield from module.run(pace)
