"""The learner's benchmark: the system is learning-bound, and updates are counted."""

import dataclasses
import math

import pytest

from learner.bench import learner
from learner.bench.measure.interleave import Pace
from learner.bench.rigs.workloads import Workload
from seedrl.config import LaunchConfig


@pytest.mark.slow
def test_both_results_are_complete(tiny: Workload) -> None:
    launch = LaunchConfig(env_servers=1, envs_per_server=4, groups=2)
    small = dataclasses.replace(tiny, config=dataclasses.replace(tiny.config, launch=launch))
    updates, products = learner.results(small, Pace(rounds=2, seconds=0.05))
    assert updates.name == "learner: CartPole, updates"
    assert products.name == "learner: CartPole, the update's products"
    for result in (updates, products):
        assert math.isfinite(result.ratio.highest) and result.ratio.lowest > 0
        assert result.conditions.batch == "3 sequences"
    # An update trains 12 steps: at this ratio even one step of all four environments owes 333.
    assert updates.details["steps/s beside"] < updates.ratio.highest * min(updates.limits) * 12
    assert products.ours == tuple(
        rate * products.details["FLOP of an update"] for rate in updates.limits
    )
