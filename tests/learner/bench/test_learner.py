"""The learner's benchmark: the system is learning-bound, and updates are counted."""

import dataclasses
import math

import pytest

from learner.bench import learner
from learner.bench.measure.interleave import Pace
from learner.bench.rigs.workloads import Subject
from seedrl.config import LaunchConfig


@pytest.mark.slow
def test_both_rows_are_complete(tiny: Subject) -> None:
    launch = LaunchConfig(env_servers=1, envs_per_server=4, groups=2)
    small = dataclasses.replace(tiny, config=dataclasses.replace(tiny.config, launch=launch))
    updates, products = learner.rows(small, Pace(rounds=2, seconds=0.05))
    assert updates.name == "learner: CartPole, updates"
    assert products.name == "learner: CartPole, the update's products"
    for row in (updates, products):
        assert math.isfinite(row.ratio.highest) and row.ratio.lowest > 0
        assert row.conditions.batch == "3 sequences"
    # An update trains 12 steps: at this ratio even one step of all four environments owes 333.
    assert updates.details["steps/s beside"] < updates.ratio.highest * min(updates.limits) * 12
    assert products.ours == tuple(
        rate * products.details["FLOP of an update"] for rate in updates.limits
    )
