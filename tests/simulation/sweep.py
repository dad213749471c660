"""Many seeds, and what they went through."""

import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from tests.simulation.learner import Learner
from tests.simulation.world import World


class Sweep(NamedTuple):
    """What a range of seeds gave.

    Attributes:
      seeds: how many.
      broken: the first broken rules of each seed that broke any.
      seen: totals: events, rows compared by what held them, and the ledger's accounts.
      seconds: wall time.
    """

    seeds: int
    broken: dict[int, list[str]]
    seen: Counter[str]
    seconds: float


def sweep(
    seeds: Iterable[int],
    build: Callable[[World, int, Any], Learner],
    *,
    report: Callable[[int], None] = lambda seed: None,
    **options: Any,
) -> Sweep:
    """Runs the history of every seed; `options` are those of `World`."""
    start = time.perf_counter()
    broken: dict[int, list[str]] = {}
    seen: Counter[str] = Counter()
    num_seeds = 0
    for seed in seeds:
        world = World(seed, build, **options)
        rules = world.run()
        if rules:
            broken[seed] = rules[:3]
        num_seeds += 1
        seen["events"] += world.timeline.num_events
        seen["sessions"] += world.num_sessions
        seen["updates"] += getattr(world.learner, "updates", 0)
        seen.update({f"checked {what}": n for what, n in world.oracle.num_checked.items()})
        seen.update(world.learner.accounts())
        report(seed)
    return Sweep(num_seeds, broken, seen, time.perf_counter() - start)
