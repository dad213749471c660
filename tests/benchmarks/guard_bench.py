"""`seedrl bench` as a whole, on systems so small that each takes a second or two.

What its parts do is tested in tests/learner/bench; here they measure.
"""

import dataclasses
import math

import pytest

from learner.bench import learner, pipeline, scaling, wire
from learner.bench.measure.interleave import Pace, serial
from learner.bench.measure.result import Result
from learner.bench.rigs.workloads import Workload
from learner.bench.scaling import Load
from learner.bench.wire import Messages
from seedrl.config import LaunchConfig

TINY = Messages(num_envs=3, shape=(5,), dtype="uint8", target=0.5)


@pytest.fixture
def small(tiny: Workload) -> Workload:
    launch = LaunchConfig(env_servers=1, envs_per_server=4, groups=2)
    return dataclasses.replace(tiny, config=dataclasses.replace(tiny.config, launch=launch))


def test_the_pipeline_gives_three_rows_and_composes_their_limits(small: Workload) -> None:
    results: list[Result] = list(
        pipeline.results(small, Pace(rounds=1, seconds=0.05), targets={"learning": 0.7})
    )
    assert [result.name for result in results] == [
        "pipeline: CartPole, acting without a network",
        "pipeline: CartPole, acting",
        "pipeline: CartPole, acting and learning",
    ]
    for result in results:
        assert math.isfinite(result.ratio.highest) and result.ratio.lowest > 0
        assert result.details["reply_ms_p99"] >= result.details["reply_ms_p50"] > 0
        parts = [value for name, value in result.details.items() if name.endswith("/s")]
        assert result.limits == (pytest.approx(serial(*parts)),)
    assert [result.target for result in results] == [None, None, 0.7]
    assert [result.conditions.replay_ratio for result in results] == [0.0, 0.0, 1.0]
    assert [sum(name.endswith("/s") for name in result.details) for result in results] == [1, 2, 3]


def test_updates_and_their_products_are_complete(small: Workload) -> None:
    updates, products = learner.results(small, Pace(rounds=2, seconds=0.05))
    assert updates.name == "learner: CartPole, updates"
    assert products.name == "learner: CartPole, the update's products"
    for result in (updates, products):
        assert math.isfinite(result.ratio.highest) and result.ratio.lowest > 0
        assert result.conditions.batch == "3 sequences"
    # An update trains 12 steps: at this ratio even one step of all four environments owes 333.
    assert updates.details["steps/s beside"] < updates.ratio.highest * min(updates.limits) * 12
    assert products.ours == tuple(
        rate * products.details["FLOP of an update"] for rate in updates.limits
    )


@pytest.mark.parametrize(
    ("over_tcp", "name", "way"),
    [(False, "wire", "links of one host"), (True, "wire over TCP", "gRPC on TCP")],
)
def test_a_row_of_the_wire_is_complete(over_tcp: bool, name: str, way: str) -> None:
    result = wire.result(TINY, Pace(rounds=2, seconds=0.05), env_servers=1, over_tcp=over_tcp)
    # A header of 16, three sections of scalars, and the observations, each padded to 8; then tag
    # and length. Answers: 16 + 12, padded to 32, and the same.
    assert result.name == f"{name}: 74 bytes"
    assert result.conditions.messages == f"74 bytes each, answers of 34, over {way}"
    assert math.isfinite(result.ratio.highest) and result.ratio.lowest > 0
    assert result.details["MB/s"] > 0
    assert result.target == 0.5


def test_env_servers_of_one_process_have_connections_of_their_own() -> None:
    # One more than the streams that the learner allows on a connection.
    load = Load(step_seconds=0.01, num_envs=2, env_servers=(17,), target=0.5)
    (result,) = scaling.results_of(load, Pace(rounds=2, seconds=0.1))
    assert result.name == "scaling: 17 x 2, 10 ms a step"
    # Each of 34 environments makes 100 steps a second at most.
    assert result.limits == (3400.0, 3400.0)
    # An interval may begin before one round of steps and end after another.
    assert 0 < result.ratio.highest <= 1.5
    assert result.target == 0.5
    assert all(math.isfinite(value) and value > 0 for value in result.details.values())
    assert result.conditions.environments.startswith("17 env servers")
