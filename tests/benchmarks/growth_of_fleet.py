"""How a step through the whole system grows with environments and with env servers."""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping

import jax

from learner.bench.measure.cpu import descendant_bytes
from learner.bench.measure.interleave import Pace, spread
from learner.bench.measure.result import Result, conditions
from learner.bench.rigs.system import System
from learner.bench.scaling import constant
from seedrl.config import Config, LaunchConfig
from tests.benchmarks.growth_axis import Axis, interleaved, results

_ENVIRONMENTS = (4, 32, 128, 512)
_ENV_SERVERS = (1, 4, 16, 32)
_FRAMES = {"shape": (84, 84), "dtype": "uint8"}
_VECTORS = {"shape": (4,), "dtype": "float32"}
_CAPACITY_PER_ENVIRONMENT = 80


def run(pace: Pace) -> Iterator[Result]:
    """An env server with up to 512 environments; up to 32 env servers with 8 each."""
    environments = {
        size: config(LaunchConfig(env_servers=1, envs_per_server=size, groups=2), _FRAMES)
        for size in _ENVIRONMENTS
    }
    yield from of_systems("environments", environments, pace)
    env_servers = {
        size: config(LaunchConfig(env_servers=size, envs_per_server=8, groups=2), _VECTORS)
        for size in _ENV_SERVERS
    }
    yield from of_systems("env servers", env_servers, pace)


def of_systems(name: str, configs: Mapping[int, Config], pace: Pace) -> Iterator[Result]:
    """An environment's step, and the memory of its arrays in the learner and of its env servers."""
    memory: dict[int, tuple[float]] = {}
    cpu: dict[int, list[float]] = {size: [] for size in configs}
    with contextlib.ExitStack() as stack:
        systems = {}
        for size, each in configs.items():
            before = _held_bytes()
            system = systems[size] = stack.enter_context(System(each))
            _fill(system)
            memory[size] = ((_held_bytes() - before) / size,)

        def seconds_of_step(size: int) -> Callable[[], float]:
            def measure() -> float:
                interval = systems[size].run(pace.seconds)
                cpu[size].append(1e6 * interval.cpu_seconds / interval.steps)
                return interval.seconds / interval.steps

            return measure

        costs = interleaved({size: seconds_of_step(size) for size in configs}, pace)
    launch = configs[min(configs)].launch
    described = conditions(
        configs[min(configs)],
        replay_ratio=0.0,
        network="none: actions at random",
        environments=f"at first {launch.env_servers} x {launch.envs_per_server} that are constant",
    )
    details = {f"CPU µs of {size:,}": spread(each).median for size, each in cpu.items()}
    yield from results(Axis(name, "µs/step", described), costs, **details)
    unit = f"bytes/{name.removesuffix('s')}"
    yield from results(Axis(f"memory of {name}", unit, described), memory)


def _held_bytes() -> int:
    # This process's own memory would say less: what one system has freed the next one uses.
    arrays = sum(array.nbytes for array in jax.live_arrays())
    return arrays + descendant_bytes(os.getpid())


def _fill(system: System) -> None:
    capacity = system.served.config.replay.capacity_steps
    system.run_until(lambda: system.parts.learning.stored_rows >= capacity)


def config(launch: LaunchConfig, observation: Mapping[str, object]) -> Config:
    """Env servers of constant environments, and a replay that grows with them."""
    num_envs = launch.env_servers * launch.envs_per_server
    return constant(observation, launch, capacity_steps=_CAPACITY_PER_ENVIRONMENT * num_envs)
