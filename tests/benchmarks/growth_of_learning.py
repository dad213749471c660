"""How an update grows with the length of its sequences and with the devices that share it."""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence

from learner.bench.measure.interleave import Pace, rate
from learner.bench.measure.measuring_process import MeasuringProcesses
from learner.bench.measure.result import Result, conditions
from learner.bench.rigs import workloads
from learner.bench.rigs.bare_learner import BareLearner
from learner.bench.rigs.workloads import Workload
from learner.launch import env_servers
from tests.benchmarks import devices
from tests.benchmarks.growth_axis import Axis, interleaved, results

_UNROLLS = (20, 80, 320, 1_280)
_DEVICES = (1, 2, 4)
_PAGE_STEPS = 20
_BATCH = 16


def run(pace: Pace) -> Iterator[Result]:
    """Sequences of 20 to 1,280 trained rows, and 1 to 4 devices made of this machine's cores."""
    yield from of_lengths(_UNROLLS, pace)
    yield from of_devices(_DEVICES, pace)


def of_lengths(unrolls: Sequence[int], pace: Pace) -> Iterator[Result]:
    """A trained row, and the memory that an update needs for it for a while."""
    learners = {unroll: _learner(unroll) for unroll in unrolls}
    measures = {
        unroll: _seconds_of_update(learner, _BATCH * unroll, pace)
        for unroll, learner in learners.items()
    }
    workload = _workload(min(unrolls))
    described = conditions(
        workload.config,
        window="no burn-in",
        stride=None,
        batch=f"{_BATCH} sequences",
        environments=workload.name,
    )
    axis = Axis("sequence length, rows", "µs/row", described)
    yield from results(axis, interleaved(measures, pace))
    memory = {
        unroll: (learner.update_bytes / (_BATCH * unroll),) for unroll, learner in learners.items()
    }
    axis = Axis("memory of an update, rows", "bytes/row", described)
    yield from results(axis, memory)


def of_devices(sizes: Sequence[int], pace: Pace) -> Iterator[Result]:
    """A trained sequence, and the memory of a process for each device; all share the same cores."""
    with contextlib.ExitStack() as stack:
        processes = {
            size: stack.enter_context(
                MeasuringProcesses(
                    devices.__name__, "--devices", str(size), environment=_split_in_devices(size)
                )
            )
            for size in sizes
        }
        measures = {
            size: lambda process=process: process.ask(pace.seconds)[0]["seconds_per_sequence"]
            for size, process in processes.items()
        }
        costs = interleaved(measures, pace)
        memory = {size: (process.ready[0]["bytes"] / size,) for size, process in processes.items()}
    workload = devices.workload()
    batch = workload.config.learning.batch_sequences
    described = conditions(
        workload.config, batch=f"{batch} sequences for each device", environments=workload.name
    )
    yield from results(Axis("devices", "µs/sequence", described), costs)
    yield from results(Axis("memory of devices", "bytes/device", described), memory)


def _split_in_devices(number: int) -> dict[str, str]:
    return {
        **env_servers.child_environment(),
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} "
        f"--xla_force_host_platform_device_count={number}",
        # Devices that wait for one another must not run out of threads.
        "PJRT_NPROC": "32",
    }


def _workload(unroll: int) -> Workload:
    workload = workloads.scaled(
        workloads.cartpole(), capacity_steps=20 * max(_UNROLLS), batch_sequences=_BATCH
    )
    agent = dataclasses.replace(workload.config.agent, burn_in=0, unroll=unroll, stride=unroll)
    replay = dataclasses.replace(workload.config.replay, page_steps=_PAGE_STEPS)
    config = dataclasses.replace(workload.config, agent=agent, replay=replay)
    return dataclasses.replace(workload, config=config)


def _learner(unroll: int) -> BareLearner:
    learner = BareLearner(_workload(unroll), pages_per_insert=_BATCH)
    learner.fill()
    learner.learn()
    return learner


def _seconds_of_update(learner: BareLearner, amount: int, pace: Pace) -> Callable[[], float]:
    def update() -> int:
        learner.learn()
        return amount

    return lambda: 1 / rate(update, pace.seconds)
