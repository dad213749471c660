"""The benchmark of scaling: its env servers are as many as it says."""

from pathlib import Path

import pytest

from learner.bench import scaling
from learner.bench.measure.interleave import Pace
from learner.bench.measure.result import Conditions, Result
from learner.bench.rigs.system import Interval
from learner.bench.scaling import Load
from learner.launch.env_servers import Fleet
from seedrl.config import Config, EnvironmentConfig


def test_numbers_of_env_servers_are_measured_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    order = []

    class System:
        def __init__(self, config: Config, commands: object) -> None:
            self.number = config.launch.env_servers

        def __enter__(self) -> "System":
            return self

        def __exit__(self, *_: object) -> None:
            order.append("end")

        def run(self, seconds: float) -> Interval:
            order.append(str(self.number))
            metrics = dict.fromkeys(("reply_ms_p50", "reply_ms_p99", "batch_fill"), 1.0)
            return Interval(self.number, 0, 1.0, 0.1, metrics)

    monkeypatch.setattr(scaling, "System", System)
    load = Load(step_seconds=1.0, num_envs=1, env_servers=(1, 2))
    results = list(scaling.results_of(load, Pace(rounds=2, seconds=0.1)))
    assert [result.ours for result in results] == [(1.0, 1.0), (2.0, 2.0)]
    assert order == ["1", "2", "2", "1", "end", "end"]


def test_env_servers_are_shared_out_over_processes(tmp_path: Path) -> None:
    commands = scaling.many_servers_commands(
        Fleet(70, 3, 1), EnvironmentConfig(id="x"), address="unix:/s", logs=tmp_path / "logs"
    )
    sizes = [
        command.arguments[command.arguments.index("--env-servers") + 1] for command in commands
    ]
    assert sizes == ["32", "32", "6"]
    assert all("--num-envs 3 --groups 1" in " ".join(command.arguments) for command in commands)


def _result(rates: tuple[float, ...], cpu_microseconds: float) -> Result:
    return Result(
        name="",
        unit="steps/s",
        limit_name="linear",
        ours=rates,
        limits=(1.0,) * len(rates),
        conditions=Conditions(),
        details={"CPU µs/step": cpu_microseconds},
    )


def test_the_knee_is_predicted_from_what_is_carried_and_found_at_the_highest_rate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scaling, "num_cores", lambda: 2)
    load = Load(step_seconds=0.01, num_envs=2, env_servers=(1, 4, 8))
    # One makes 100 steps a second and takes 0.3 cores, two 200 and 0.4, four 400 and 0.6: 1 ms a
    # step more, so that the other 1.8 of two cores carry 1,800.
    results = {
        1: _result((100.0,), 3_000.0),
        2: _result((200.0,), 2_000.0),
        4: _result((350.0, 400.0, 500.0), 1_500.0),
        8: _result((600.0, 700.0, 800.0), 2_500.0),
    }
    (knee,) = scaling.knee(load, results)
    assert knee.ours == (pytest.approx(1_800 / 100),)
    assert knee.limits == (pytest.approx(700 / 100),)
    assert knee.details == {
        "predicted from up to env servers": 4,
        "CPU µs of a step more": pytest.approx(1_000),
    }
    assert knee.name == "scaling: knee, 2 environments, 10 ms a step"


def test_there_is_no_knee_where_all_are_carried() -> None:
    load = Load(step_seconds=0.01, num_envs=2, env_servers=(1, 4))
    assert list(scaling.knee(load, {1: _result((180.0,), 1.0), 4: _result((700.0,), 1.0)})) == []


def test_no_line_can_be_drawn_through_one_load() -> None:
    load = Load(step_seconds=0.01, num_envs=2, env_servers=(1, 4))
    assert list(scaling.knee(load, {1: _result((180.0,), 1.0), 4: _result((300.0,), 1.0)})) == []
