"""Many seeds, and what they went through."""

import gc
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from tests.simulation.learner import CoreLearner, Learner
from tests.simulation.world import World


class Sweep(NamedTuple):
    """What a range of seeds gave.

    Attributes:
      seeds: how many.
      broken: the first broken rules of each seed that broke any.
      seen: totals: events, rows compared by what held them, and the ledger's accounts.
    """

    seeds: int
    broken: dict[int, list[str]]
    seen: Counter[str]


# Without faults, at the end of each history: in which the jitted programs learn.
CALM_SECONDS = 0.12


def sweep(
    seeds: Iterable[int], build: Callable[[World, int, Any], Learner], *, calm_seconds: float = 0.0
) -> Sweep:
    """Runs the history of every seed."""
    broken: dict[int, list[str]] = {}
    seen: Counter[str] = Counter()
    num_seeds = 0
    for seed in seeds:
        world = World(seed, build, calm_seconds=calm_seconds)
        rules = world.run()
        if rules:
            broken[seed] = rules[:3]
        num_seeds += 1
        seen["events"] += world.timeline.num_events
        seen["sessions"] += world.num_sessions
        seen["updates"] += getattr(world.learner, "updates", 0)
        seen.update({f"checked {what}": n for what, n in world.oracle.num_checked.items()})
        seen.update(world.learner.accounts())
        if num_seeds % 50 == 0:
            gc.collect()  # a world is one large circle
    return Sweep(num_seeds, broken, seen)


def sweep_of(kind: str, first: int, end: int) -> Sweep:
    """Of learners of a kind, in a process of its own: it sets up a device only if one is needed."""
    if kind == "core":
        return sweep(range(first, end), CoreLearner)
    from tests.conftest import set_up_jax
    from tests.simulation.program_learner import ProgramLearner

    set_up_jax()
    return sweep(range(first, end), ProgramLearner, calm_seconds=CALM_SECONDS)


def merged(sweeps: Iterable[Sweep]) -> Sweep:
    """All of them as one."""
    total = Sweep(0, {}, Counter())
    for each in sweeps:
        total = Sweep(total.seeds + each.seeds, total.broken | each.broken, total.seen + each.seen)
    return total
