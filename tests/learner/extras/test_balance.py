"""Balance: the arithmetic of a curve, and a short curve of real systems."""

import dataclasses
import json
from pathlib import Path

import pytest

from learner.cli.main import main
from learner.extras.balance import Curve, costs_of_run, knee, measure, png, scaled
from learner.extras.bench.measuring import Pace
from learner.extras.bench.workloads import Workload
from learner.report.balance import Costs
from seedrl import config_io
from seedrl.config import LaunchConfig, check
from seedrl.errors import ConfigError

METRICS = {
    "kind": "metrics",
    "env_steps_per_second": 400.0,
    "env_servers": 4.0,
    "slots_live": 32.0,
    "env_step_ms": 10.0,
    "acting_waits_share": 0.0,
    "acting_act_share": 0.2,
    "learning_waits_share": 0.5,
}


def test_a_knee_is_where_a_curve_bends() -> None:
    def curve(bend: float, *numbers: int) -> dict[int, float]:
        return {number: 100 * min(number, bend) for number in numbers}

    assert knee(curve(3.5, 1, 2, 4, 6)) == pytest.approx(3.5, rel=0.01)
    assert knee(curve(0.5, 1, 2, 4)) == 1.0  # level
    assert knee(curve(9.0, 1, 2, 4)) == pytest.approx(4.0)  # in proportion
    assert knee({1: 103.0, 2: 196.0, 4: 352.0, 6: 348.0}) == pytest.approx(3.5, rel=0.05)


def test_a_point_is_a_run_of_as_many_environments_each_slowed_by_a_wrapper() -> None:
    config = config_io.load("cartpole_r2d2")  # 32 training slots of 2 env servers
    for env_servers in (1, 16):
        changed = scaled(config, env_servers, 10)
        assert changed.serving.training_slots == 16 * env_servers
        assert changed.environment.wrappers == ("envs_server.envs.slowed:by_10_ms",)
        check(changed)
    assert scaled(config, 1, 0).environment.wrappers == ()


def run_folder(folder: Path) -> Path:
    """A run with metrics that have the costs of a step."""
    folder.mkdir()
    config = config_io.load("cartpole_r2d2")
    changed = dataclasses.replace(
        config,
        launch=LaunchConfig(env_servers=2),
        serving=dataclasses.replace(config.serving, evaluation_slots=0),
        evaluation=dataclasses.replace(config.evaluation, target_return=None),
    )
    (folder / "config.json").write_text(config_io.to_json(changed))
    # The first half, in which nothing is learned, does not count.
    early = {**METRICS, "env_steps_per_second": 9_999.0, "learning_waits_share": 1.0}
    lines = [{**early, "env_steps": 1}, *({**METRICS, "env_steps": step} for step in range(2, 30))]
    # An env server was away.
    lines[-2] |= {"env_servers": 3.0, "slots_live": 24.0}
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_a_run_predicts_for_others_without_being_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_folder(tmp_path / "run")
    config = config_io.load(run / "config.json")
    costs, each = costs_of_run(run, config)
    assert (costs.env_servers, costs.environment, costs.learning) == (4, 0.01, 0.5 / 400)
    assert each == 8  # as the run had, whatever its configuration starts
    # 80 environments in 10 env servers of 10 ms a step: learning's 800 bind. Of 50 ms: 200.
    for words, first in (
        ("--environments 80", "80 environments in 10 env servers: 800 steps/s, predicted"),
        (
            "--environments 80 --step-ms 50",
            "80 environments in 10 env servers: 200 steps/s, predicted",
        ),
        # Acting and learning take a tenth of the time; the 4 env servers of 10 ms do not.
        ("--accelerator 10", "32 environments in 4 env servers: 400 steps/s, predicted"),
        (
            "--accelerator 10 --environments 800",
            "800 environments in 100 env servers: 8,000 steps/s, predicted",
        ),
    ):
        for place in (run, run / "config.json"):
            assert main(["balance", str(place), *words.split()]) == 0
            assert capsys.readouterr().out.splitlines()[0] == first
    with pytest.raises(ConfigError, match="--environments"):
        costs_of_run(tmp_path, config)
    for words in ("--step-ms inf", "--accelerator 1e300", f"--environments {10**400}"):
        assert main(["balance", str(run), *words.split()]) == 2
        assert words.split()[0] in capsys.readouterr().err


@pytest.mark.gate
def test_a_curve_of_real_systems(tiny: Workload) -> None:
    seen: list[str] = []
    launch = LaunchConfig(env_servers=1, envs_per_server=2)
    config = dataclasses.replace(tiny.config, launch=launch)
    curve = measure(config, Pace(1, 0.5), step_ms=10, most=2, look=seen.append)
    # A step of 10 ms, less what the model takes for the message.
    assert list(curve.rates) == [1, 2] and curve.costs.environment > 0.009
    assert "10 ms slower: measuring 2 env servers" in seen
    # An env server steps its environments one after another.
    for number, rate in curve.rates.items():
        assert 0 < rate <= 100 * number


def test_a_curve_is_drawn_with_its_prediction() -> None:
    curve = Curve(10, Costs(1, 0.01, 0.001, 0.005, 2), {1: 100.0, 2: 195.0, 4: 210.0})
    assert curve.predicted == pytest.approx(2.0) and curve.is_within and curve.is_clear
    # Of a machine that other programs left meanwhile.
    rising = curve._replace(rates={1: 50.0, 2: 86.0, 5: 146.0, 7: 202.0, 8: 227.0})
    assert rising.is_within and not rising.is_clear
    assert png([curve, curve._replace(step_ms=0)], "CartPole").startswith(b"\x89PNG")
