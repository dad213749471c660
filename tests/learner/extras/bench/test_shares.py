"""Where the time of both sides goes, in a real run on CartPole."""

import dataclasses

import pytest

from learner.extras.bench.system import System
from learner.extras.bench.workloads import Workload
from learner.report.stages import STAGES
from seedrl.config import LaunchConfig

pytestmark = pytest.mark.slow


def test_the_stages_of_each_side_add_up_to_its_time(tiny: Workload) -> None:
    launch = LaunchConfig(env_servers=1, envs_per_server=2, groups=2)
    with System(dataclasses.replace(tiny.config, launch=launch)) as system:
        system.run(0.1)
        # A stage counts where it ends: long enough that both ends of the interval matter little.
        metrics = system.run(5.0).metrics
    for side, stages in STAGES.items():
        shares = {stage: metrics[f"{side}_{stage}_share"] for stage in stages}
        assert sum(shares.values()) == pytest.approx(1.0, abs=0.05), shares
        assert min(shares.values()) >= 0
    # Steps take no longer than the interval has time for.
    assert 0 < metrics["env_step_ms"] * metrics["env_steps_per_second"] / 1e3 <= 1.05
