"""A real system in this process: what it counts, and that each side is measured by itself."""

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

import pytest

from learner.cli.main import main
from learner.extras.bench import bounds
from learner.extras.bench.bounds import Sides, prepared
from learner.extras.bench.system import System
from learner.extras.bench.workloads import Workload
from learner.report.stages import STAGES
from seedrl import config_io
from seedrl.config import LaunchConfig
from seedrl.errors import ConfigError
from tests import own_process

pytestmark = pytest.mark.slow
Capture: TypeAlias = pytest.CaptureFixture[str]
SLOTS = 4
UPDATE_STEPS = 16  # at replay ratio 1: 4 sequences of 4 rows


@pytest.fixture(scope="module")
def system(tiny: Workload) -> Iterator[System]:
    learning = dataclasses.replace(tiny.config.learning, batch_sequences=4)
    launch = LaunchConfig(env_servers=2, groups=1)
    config = dataclasses.replace(tiny.config, learning=learning, launch=launch)
    with System(prepared(config)) as system:
        yield system


@pytest.mark.gate
def test_each_side_is_measured_while_the_other_one_rests(
    system: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    sides, acting, learning = Sides(system), system.parts.acting[0], system.parts.learning
    assert system.served.config.serving.training_slots == SLOTS
    sides.collect()
    assert learning.updates == 0
    for _ in range(2):
        assert sides.run(0.05).steps > 0
        limiter, updates = system.parts.channel.limiter.now, learning.updates
        assert sides.act(0.05).steps > 0
        assert learning.updates == updates
        assert system.parts.channel.limiter.now == limiter
        sides.collect()
        steps, limiter = acting.training_steps, system.parts.channel.limiter.now
        assert sides.learn(0.05).updates > 0
        assert learning.updates > updates
        assert acting.training_steps == steps
        after = system.parts.channel.limiter.now
        assert after.metrics() == limiter.metrics() and after.may_act() == limiter.may_act()
    # A row in ten or so is the first one of an episode, which is no step.
    assert 0.8 * UPDATE_STEPS < sides.update_steps() <= UPDATE_STEPS

    # The command, of a run's directory; as if it had started this system.
    monkeypatch.setattr(bounds, "System", lambda _: contextlib.nullcontext(system))
    (tmp_path / "config.json").write_text(config_io.to_json(config_io.load("cartpole_r2d2")))
    with own_process.restored():
        assert main(["bounds", str(tmp_path), "--seconds", "0.05", "--rounds", "1"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == 6 and shown[1].startswith("acting without learning")


@pytest.mark.gate
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


@pytest.mark.gate
def test_the_stages_of_each_side_add_up_and_a_system_reports_as_a_run_does(system: System) -> None:
    metrics = system.run(1.0).metrics
    for side, stages in STAGES.items():
        shares = {stage: metrics[f"{side}_{stage}_share"] for stage in stages}
        # A stage counts where it ends.
        assert sum(shares.values()) == pytest.approx(1.0, abs=0.15), shares
        assert min(shares.values()) >= 0
    assert metrics["env_servers"] == 2 and metrics["env_step_ms"] > 0
    for name in ("learner", "env_servers"):
        assert metrics[f"{name}_cpu_seconds_per_second"] > 0


def test_env_servers_that_have_all_left_are_not_waited_for() -> None:
    # Restarted ones would fail again: each measurement would wait for its whole deadline.
    system: Any = System(config_io.load("cartpole_impala"))
    servers = [
        SimpleNamespace(state="left", last_failure="RuntimeError: third step"),
        SimpleNamespace(state="left", last_failure="", left_because="its connection ended"),
    ]
    found = SimpleNamespace(servers=servers)
    system.served = SimpleNamespace(hub=SimpleNamespace(env_servers=lambda: found))
    with pytest.raises(ConfigError, match="it ended: RuntimeError: third step"):
        system._await(lambda: False)
    servers[0].state = "live"
    looks = iter([False, False, True])
    system._await(lambda: next(looks))
