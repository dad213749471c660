"""The benchmark of useful CPU time: shares of what both runs take."""

import dataclasses

import pytest

from learner.bench.measure.interleave import Pace
from learner.bench.rigs.workloads import Workload
from seedrl.config import LaunchConfig
from tests.benchmarks import cpu_efficiency


@pytest.mark.slow
def test_what_is_needed_is_the_sum_of_its_parts(tiny: Workload) -> None:
    launch = LaunchConfig(env_servers=1, envs_per_server=4, groups=2)
    small = dataclasses.replace(tiny, config=dataclasses.replace(tiny.config, launch=launch))
    acting, learning = cpu_efficiency.results(small, Pace(rounds=1, seconds=0.1))
    assert [acting.name, learning.name] == [
        "useful: CartPole, acting",
        "useful: CartPole, acting and learning",
    ]
    for result in (acting, learning):
        assert result.ours == (pytest.approx(sum(result.details.values())),)
        assert result.ratio.lowest > 0
    assert [acting.target, learning.target] == [0.75, 0.85]
    assert list(learning.details) == ["stepping µs", "inference µs", "update µs"]
    # An update costs something, and is not made while only acting.
    assert learning.ours > acting.ours
