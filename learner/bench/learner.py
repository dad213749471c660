"""Learner: updates of the running system against the bare update, and against the device's peak.

The replay ratio is so high that acting nearly always waits for learning. What its env servers and
its own threads still take of the CPU is measured too.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp

from learner.bench.measure import own_process
from learner.bench.measure.interleave import Pace, interleave, rate, spread
from learner.bench.measure.result import Result, conditions
from learner.bench.rigs import workloads
from learner.bench.rigs.bare_learner import BareLearner
from learner.bench.rigs.system import System
from learner.bench.rigs.workloads import Workload
from seedrl.config import Config, LaunchConfig

_PAGES_PER_INSERT = 16
_LEARNING_BOUND = 1_000.0
_MATRIX = 2_048


def run(pace: Pace) -> Iterator[Result]:
    """Pong with batches of 8 sequences, CartPole with 64."""
    pong = workloads.scaled(
        workloads.pong(),
        launch=LaunchConfig(env_servers=1, envs_per_server=32, groups=2),
        capacity_steps=20_000,
        batch_sequences=8,
    )
    cartpole = workloads.scaled(
        workloads.cartpole(),
        launch=LaunchConfig(env_servers=2, envs_per_server=16, groups=2),
        capacity_steps=100_000,
        batch_sequences=64,
    )
    for workload in (pong, cartpole):
        yield from own_process.results(workload.config, results, workload, pace)


class _Measured(NamedTuple):
    """A value a round.

    Attributes:
      system, bare: updates/s.
      products: FLOP/s of a large matrix product.
      steps: steps/s beside the system's updates.
    """

    system: tuple[float, ...]
    bare: tuple[float, ...]
    products: tuple[float, ...]
    steps: tuple[float, ...]


def results(workload: Workload, pace: Pace) -> Iterator[Result]:
    """Updates a second beside the bare update's, and the bare update's FLOP/s beside the peak."""
    learning = workload.config.learning
    replay = dataclasses.replace(workload.config.replay, ratio=_LEARNING_BOUND)
    config = dataclasses.replace(workload.config, replay=replay)
    learner = BareLearner(workload, pages_per_insert=_PAGES_PER_INSERT)
    learner.fill()
    learner.learn()
    measured = _measured(config, learner, pace)
    described = conditions(
        config,
        batch=f"{learning.batch_sequences} sequences",
        messages=f"{config.launch.envs_per_server // config.launch.groups} environments each",
        environments=f"{config.launch.env_servers} x {config.launch.envs_per_server} "
        f"{workload.name}",
    )
    yield Result(
        name=f"learner: {workload.name}, updates",
        unit="updates/s",
        limit_name="bare update",
        ours=measured.system,
        limits=measured.bare,
        target=0.95,
        conditions=described,
        details={"steps/s beside": spread(measured.steps).median},
    )
    flops = learner.flops_per_update
    yield Result(
        name=f"learner: {workload.name}, the update's products",
        unit="FLOP/s",
        limit_name=f"product of two matrices of {_MATRIX:,}",
        ours=tuple(flops * updates for updates in measured.bare),
        limits=measured.products,
        conditions=described,
        details={"FLOP of an update": flops},
    )


def _measured(config: Config, learner: BareLearner, pace: Pace) -> _Measured:
    product = _matrix_product()

    def update() -> int:
        learner.learn()
        return 1

    with System(config) as system:
        system.run_until(lambda: system.parts.learning.updates > 0)
        intervals = []

        def run_system() -> float:
            intervals.append(system.run(pace.seconds, by_updates=True))
            return intervals[-1].updates / intervals[-1].seconds

        measured = interleave(
            {
                "system": run_system,
                "update": lambda: rate(update, pace.seconds),
                "product": lambda: rate(product, pace.seconds),
            },
            pace.rounds,
        )
    return _Measured(
        measured["system"],
        measured["update"],
        measured["product"],
        tuple(interval.steps / interval.seconds for interval in intervals),
    )


def _matrix_product() -> Callable[[], int]:
    """A product of two large matrices; returns its operations."""
    matrix = jnp.ones((_MATRIX, _MATRIX), jnp.float32)
    program = jax.jit(jnp.matmul)

    def product() -> int:
        program(matrix, matrix).block_until_ready()
        return 2 * _MATRIX**3

    product()
    return product
