"""Seeds of the core: real env servers, wire, serving core and page index; all else simulated.

Odd seeds play the plug-in's counting environment, which takes real actions.

Many more seeds: `python -m tests.simulation --core 100000`.
"""

import functools

import pytest

from tests.simulation.faults import Faults
from tests.simulation.learner import Bug, CoreLearner
from tests.simulation.sweep import sweep
from tests.simulation.world import World

# Everything that can happen to a row.
_SEEN = (
    "fenced",
    "duplicate",
    "struck",
    "discarded",
    "evaluation",
    "stored",
)


def test_nothing_is_mixed_up_whatever_goes_wrong() -> None:
    # The planted bugs that this finds at all, it finds within 30 seeds (tests/mutation).
    found = sweep(range(32), CoreLearner)
    assert found.broken == {}
    # Everything that can happen to a row has happened to some.
    for account in _SEEN:
        assert found.seen[account] > 0, account
    assert found.seen["sessions"] > found.seeds
    assert min(found.seen[f"checked {what}"] for what in ("action", "page", "sequence")) > 2_000


def test_a_seed_is_a_history() -> None:
    def trace(seed: int) -> str:
        world = World(seed, CoreLearner)
        assert world.run() == []
        return world.timeline.trace

    assert trace(5) == trace(5) != trace(6)


@pytest.mark.parametrize(
    "bug", ["stores the carry burn-in steps late", "resets the carry one step late"]
)
def test_the_oracle_sees_a_wrong_carry_on_every_seed(bug: Bug) -> None:
    seeds = range(2)
    found = sweep(seeds, functools.partial(CoreLearner, bug=bug))
    assert list(found.broken) == list(seeds)


@pytest.mark.parametrize("fault", Faults._fields)
def test_each_fault_alone_breaks_nothing(fault: str) -> None:
    rates = {"fail_save": 0.5, "restart_learner": 0.05}
    drawn = Faults(**{fault: rates.get(fault, 0.05)})
    if fault == "fail_save":
        drawn = drawn._replace(restart_learner=0.05)
    for seed in range(2):
        assert World(seed, CoreLearner, drawn=drawn).run() == []
