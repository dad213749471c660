"""The benchmark of scaling: its env servers are as many as it says."""

import math
from pathlib import Path

import pytest

from learner.bench import scaling
from learner.bench.alternation import Pace
from learner.bench.row import Conditions, Row
from learner.bench.scaling import Load
from learner.cli.fleet import Fleet
from seedrl.config import EnvironmentConfig


@pytest.mark.slow
def test_env_servers_of_one_process_have_connections_of_their_own() -> None:
    # One more than the streams that the learner allows on a connection.
    load = Load(step_seconds=0.01, num_envs=2, env_servers=(17,), target=0.5)
    row = scaling.row(load, 17, Pace(rounds=2, seconds=0.1))
    assert row.name == "scaling: 17 x 2, 10 ms a step"
    # Each of 34 environments makes 100 steps a second at most.
    assert row.limits == (3400.0, 3400.0)
    # An interval may begin before one round of steps and end after another.
    assert 0 < row.ratio.highest <= 1.5
    assert row.target == 0.5
    assert all(math.isfinite(value) and value > 0 for value in row.details.values())
    # No more environments are bearable than the cores have time for.
    assert row.conditions.environments.startswith("17 env servers")


def test_env_servers_are_shared_out_over_processes(tmp_path: Path) -> None:
    commands = scaling.crowd_commands(
        Fleet(70, 3, 1), EnvironmentConfig(id="x"), address="unix:/s", logs=tmp_path / "logs"
    )
    sizes = [
        command.arguments[command.arguments.index("--env-servers") + 1] for command in commands
    ]
    assert sizes == ["32", "32", "6"]
    assert all("--num-envs 3 --groups 1" in " ".join(command.arguments) for command in commands)


def _row(rates: tuple[float, ...], linear: float, knee: float) -> Row:
    return Row(
        name="",
        unit="steps/s",
        limit_name="linear",
        ours=rates,
        limits=(linear,) * len(rates),
        conditions=Conditions(),
        details={"knee at env servers": knee},
    )


def test_the_knee_is_predicted_by_the_most_that_are_carried_and_found_at_the_highest_rate() -> None:
    load = Load(step_seconds=0.01, num_envs=2, env_servers=(1, 4, 8))
    # An env server alone makes 200 steps a second; eight of them get 1,200: what six would make.
    rows = {
        1: _row((199.0,), 200.0, knee=3.0),
        4: _row((700.0, 750.0, 800.0), 800.0, knee=5.0),
        8: _row((1100.0, 1200.0, 1300.0), 1600.0, knee=9.0),
    }
    (knee,) = scaling.knee(load, rows)
    assert (knee.ours, knee.limits) == ((5.0,), (pytest.approx(6.0),))
    assert knee.name == "scaling: knee, 2 environments, 10 ms a step"


def test_there_is_no_knee_where_all_are_carried_or_none() -> None:
    load = Load(step_seconds=0.01, num_envs=2, env_servers=(1, 4))
    carried, lost = _row((199.0,), 200.0, knee=3.0), _row((300.0,), 800.0, knee=3.0)
    assert list(scaling.knee(load, {1: carried})) == []
    assert list(scaling.knee(load, {1: lost, 4: lost})) == []
