"""Scaling: env servers that sleep, from few to many, against as many times what one could do."""

import contextlib
import dataclasses
import functools
import json
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from learner.bench.measure import own_process
from learner.bench.measure.interleave import Pace, interleave, spread
from learner.bench.measure.machine import num_cores
from learner.bench.measure.result import Result, conditions
from learner.bench.rigs.null_agent import NullAgentConfig
from learner.bench.rigs.system import Interval, System
from learner.bench.rigs.workloads import ENDLESS
from learner.launch import env_servers
from learner.launch.child import Command
from learner.launch.env_servers import Fleet
from seedrl.agents.window import WindowSpec
from seedrl.config import Config, EnvironmentConfig, LaunchConfig, ReplayConfig

_SERVERS_PER_PROCESS = 32
_WINDOW = WindowSpec(burn_in=0, unroll=20, bootstrap=1, stride=20)


class Load(NamedTuple):
    """Env servers of `num_envs` environments each, whose common step sleeps for `step_seconds`."""

    step_seconds: float
    num_envs: int
    env_servers: tuple[int, ...]
    target: float | None = None


_LOADS = (
    Load(0.05, 1, (1, 8, 32)),
    Load(0.05, 1, (128,), target=0.95),
    Load(0.005, 16, (1, 2, 4, 8, 32)),
)
# A load is carried if this share of it is.
_CARRIED = 0.9


def run(pace: Pace) -> Iterator[Result]:
    """50 ms a step and one environment each, then 5 ms a step and 16 each."""
    for load in _LOADS:
        config = _config(load, max(load.env_servers))
        yield from own_process.results(config, results_of, load, pace)


def results_of(load: Load, pace: Pace) -> Iterator[Result]:
    """A result for each number of env servers, and that of the knee.

    Measured interleaved, as the knee compares them: a machine may be half as fast for a minute.
    """
    intervals: dict[int, list[Interval]] = {number: [] for number in load.env_servers}
    with contextlib.ExitStack() as stack:
        systems = {
            number: stack.enter_context(
                System(_config(load, number), commands=many_servers_commands)
            )
            for number in load.env_servers
        }

        def measure(number: int) -> float:
            intervals[number].append(systems[number].run(pace.seconds))
            return intervals[number][-1].seconds

        interleave({str(n): functools.partial(measure, n) for n in systems}, pace.rounds)
    results = {number: _result(load, number, intervals[number]) for number in load.env_servers}
    yield from results.values()
    yield from knee(load, results)


def knee(load: Load, results: Mapping[int, Result]) -> Iterator[Result]:
    """The number of env servers that is too many: predicted from those before, and found.

    Predicted where CPU time would take all cores if each step more cost what it does while all are
    carried: a line through those loads, because the more steps wait in a batch, the less one costs.
    Found where the rate stays that of the most env servers of all. Both count in what the fewest
    make, each: an env server of one group also waits for its answers. No result if all are
    carried, or if fewer than two loads are.
    """
    fewest, most = min(results), max(results)
    rates = {number: spread(each.ours).median for number, each in results.items()}
    of_one = rates[fewest] / fewest
    carried = [number for number, rate in rates.items() if rate >= _CARRIED * number * of_one]
    if most in carried or len(carried) < 2:
        return
    cores = [1e-6 * results[number].details["CPU µs/step"] * rates[number] for number in carried]
    of_a_step, at_rest = np.polyfit([rates[number] for number in carried], cores, 1)
    yield Result(
        name=f"scaling: knee, {load.num_envs} environments, {1e3 * load.step_seconds:g} ms a step",
        unit="env servers predicted",
        limit_name="found, to be met within 15 %",
        ours=((num_cores() - at_rest) / of_a_step / of_one,),
        limits=(rates[most] / of_one,),
        conditions=results[most].conditions,
        details={
            "predicted from up to env servers": max(carried),
            "CPU µs of a step more": 1e6 * of_a_step,
        },
    )


def _result(load: Load, env_servers: int, intervals: Sequence[Interval]) -> Result:
    """`env_servers` env servers of this load, of which nobody learns."""
    config = _config(load, env_servers)
    rates = tuple(interval.steps / interval.seconds for interval in intervals)
    cpu_seconds = spread([interval.cpu_seconds / interval.steps for interval in intervals]).median
    linear = env_servers * load.num_envs / load.step_seconds
    return Result(
        name=f"scaling: {env_servers} x {load.num_envs}, {1e3 * load.step_seconds:g} ms a step",
        unit="steps/s",
        limit_name="linear",
        ours=rates,
        limits=(linear,) * len(rates),
        target=load.target,
        conditions=conditions(
            config,
            replay_ratio=0.0,
            network="none: actions at random",
            messages=f"{load.num_envs} environments each",
            environments=f"{env_servers} env servers, {_SERVERS_PER_PROCESS} in a process at most",
        ),
        details={
            "CPU µs/step": 1e6 * cpu_seconds,
            "reply_ms_p50": spread([i.metrics["reply_ms_p50"] for i in intervals]).median,
            "reply_ms_p99": spread([i.metrics["reply_ms_p99"] for i in intervals]).median,
            "batch_fill": spread([i.metrics["batch_fill"] for i in intervals]).median,
        },
    )


def many_servers_commands(
    planned: Fleet, environment: EnvironmentConfig, *, address: str, logs: Path
) -> list[Command]:
    """The env servers of `planned` as threads of few processes."""
    del environment  # of our own package: always allowed
    logs.mkdir(parents=True, exist_ok=True)
    left, sizes = planned.num_servers, []
    while left > 0:
        sizes.append(min(left, _SERVERS_PER_PROCESS))
        left -= sizes[-1]
    return [
        Command(
            name=f"many servers {index}",
            arguments=(
                *(sys.executable, "-m", "envs_server.bench.many_servers", "--learner", address),
                *("--env-servers", str(size), "--num-envs", str(planned.num_envs)),
                *("--groups", str(planned.num_groups)),
                *(() if planned.local_link else ("--no-local-link",)),
            ),
            environment=env_servers.env_server_environment(),
            log=logs / f"many_servers_{index}.log",
            ending=signal.SIGKILL,
        )
        for index, size in enumerate(sizes)
    ]


def _config(load: Load, env_servers: int) -> Config:
    launch = LaunchConfig(env_servers=env_servers, envs_per_server=load.num_envs, groups=1)
    return constant(
        {"shape": (4,), "dtype": "float32", "step_seconds": load.step_seconds},
        launch,
        capacity_steps=100_000,
    )


def constant(
    arguments: Mapping[str, object], launch: LaunchConfig, *, capacity_steps: int
) -> Config:
    """Environments in which nothing happens, see `envs_server.envs.constant`, and no learning."""
    config = Config(
        environment=EnvironmentConfig(
            id="envs_server.envs.constant:make",
            arguments=json.dumps(arguments),
            vectorization="native",
        ),
        agent=NullAgentConfig(window=_WINDOW),
        # So few updates are due that none is ever made.
        replay=ReplayConfig(
            capacity_steps=capacity_steps, min_steps=capacity_steps // 2, ratio=1e-9
        ),
        launch=launch,
    )
    learning = dataclasses.replace(config.learning, num_devices=1, total_steps=ENDLESS)
    return dataclasses.replace(config, learning=learning)
