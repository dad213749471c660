"""The pipeline's benchmark; what a system counts: test_system.py."""

import dataclasses

import pytest

from learner.extras.bench import pipeline
from learner.extras.bench.measuring import Pace
from learner.extras.bench.workloads import Workload
from learner.processes import env_servers
from seedrl.config import LaunchConfig, check


# Each figure is of a whole system, which is built and compiled.
@pytest.mark.gate
def test_a_measurement_has_all_rows_of_its_figures(tiny: Workload) -> None:
    launch = LaunchConfig(env_servers=1, envs_per_server=2, groups=2)
    small = dataclasses.replace(tiny, config=dataclasses.replace(tiny.config, launch=launch))
    measured, _ = pipeline.measure(small, Pace(2, 0.01), list(pipeline.FIGURES))
    assert set(measured) == {"stepping", "network", "update", *pipeline.FIGURES}
    assert all(rate > 0 for rates in measured.values() for rate in rates)


@pytest.mark.parametrize("workload", [pipeline.pong(), pipeline.cartpole()])
def test_what_is_measured_is_a_configuration_that_runs(workload: Workload) -> None:
    env_servers.plan(workload.config)
    check(workload.config)
