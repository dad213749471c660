"""The pipeline's benchmark: what it counts went through the whole system."""

import dataclasses
from collections.abc import Iterator

import pytest

from learner.extras.bench import pipeline
from learner.extras.bench.measuring import Pace
from learner.extras.bench.system import System
from learner.extras.bench.workloads import Workload
from learner.processes import env_servers
from learner.report.stages import STAGES
from seedrl.config import LaunchConfig, check

pytestmark = pytest.mark.slow
SLOTS = 2


@pytest.fixture(scope="module")
def small(tiny: Workload) -> Workload:
    launch = LaunchConfig(env_servers=1, envs_per_server=SLOTS, groups=2)
    return dataclasses.replace(tiny, config=dataclasses.replace(tiny.config, launch=launch))


@pytest.fixture(scope="module")
def system(small: Workload) -> Iterator[System]:
    with System(small.config) as system:
        yield system


def test_an_interval_counts_what_went_through_the_system(system: System) -> None:
    acting, learning = system.parts.acting[0], system.parts.learning
    system.run(0.01)
    before = acting.training_steps
    interval = system.run(0.05)
    # What was done before the interval and after it is not in it.
    assert 0 < interval.steps < acting.training_steps - before
    assert interval.seconds >= 0.05
    assert interval.metrics["inference_ms"] > 0
    ledger = system.served.hub.ledger()
    # What was answered is a step, or the first row of an episode; all full pages are in replay.
    assert ledger["answered"] > acting.training_steps > ledger["answered"] / 2
    system.run_until(lambda: learning.stored_rows == system.served.hub.ledger()["completed"])


def test_an_interval_by_updates_holds_whole_updates_and_nothing_moves_after_it(
    system: System,
) -> None:
    interval = system.run(0.01, by_updates=True)
    assert interval.updates >= 1
    # At replay ratio 1 an update of 3 sequences of 4 rows makes up for 12 steps; the limiter's
    # tolerance is 2 updates, and a step of all environments may come on top.
    assert abs(interval.steps - 12 * interval.updates) <= 2 * 12 + SLOTS
    answered, updates = system.served.hub.ledger()["answered"], system.parts.learning.updates
    # Every environment's next step has come, and none is answered.
    system.served.await_rows(answered + SLOTS)
    assert system.served.hub.ledger()["answered"] == answered
    assert system.parts.learning.updates == updates


def test_the_stages_of_each_side_add_up_and_a_system_reports_as_a_run_does(system: System) -> None:
    # A stage counts where it ends: long enough that both ends of the interval matter little.
    interval = system.run(3.0)
    metrics = interval.metrics
    for side, stages in STAGES.items():
        shares = {stage: metrics[f"{side}_{stage}_share"] for stage in stages}
        assert sum(shares.values()) == pytest.approx(1.0, abs=0.08), shares
        assert min(shares.values()) >= 0
    # As a run reports them: read a moment later than the interval ends.
    assert metrics["env_servers"] == 1
    rate = interval.steps / interval.seconds
    assert metrics["env_steps_per_second"] == pytest.approx(rate, rel=0.2)
    used = [metrics[f"{name}_cpu_seconds_per_second"] for name in ("learner", "env_servers")]
    assert sum(used) == pytest.approx(interval.processor_seconds / interval.seconds, rel=0.2)
    # Steps take no longer than the interval has time for.
    assert 0 < metrics["env_step_ms"] * metrics["env_steps_per_second"] / 1e3 <= 1.05


# Each figure is of a whole system, which is built and compiled.
@pytest.mark.gate
def test_a_measurement_has_all_rows_of_its_figures(small: Workload, pace: Pace) -> None:
    measured, _ = pipeline.measure(small, pace, list(pipeline.FIGURES))
    assert set(measured) == {"stepping", "network", "update", *pipeline.FIGURES}
    assert all(rate > 0 for rates in measured.values() for rate in rates)


@pytest.mark.parametrize("workload", [pipeline.pong(), pipeline.cartpole()])
def test_what_is_measured_is_a_configuration_that_runs(workload: Workload) -> None:
    check(env_servers.plan(workload.config)[0])
