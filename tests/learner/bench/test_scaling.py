"""The benchmark of scaling: its env servers are as many as it says."""

import math
from pathlib import Path

import pytest

from learner.bench import scaling
from learner.bench.alternation import Pace
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
