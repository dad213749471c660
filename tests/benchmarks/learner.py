"""Learner: updates of the running system against the bare update.

The replay ratio is so high that acting nearly always waits for learning.
"""

import dataclasses
from collections.abc import Iterator

from learner.extras.bench import workloads
from learner.extras.bench.measuring import Pace, Result, apart, interleave, rate, spread
from learner.extras.bench.system import System
from learner.extras.bench.workloads import BareUpdate, Workload
from seedrl.config import LaunchConfig
from tests.benchmarks.conditions import conditions

_LEARNING_BOUND = 1_000.0


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
        yield from apart(workload.config, results, workload, pace)


def results(workload: Workload, pace: Pace) -> Iterator[Result]:
    """Updates a second of the system against the bare update's."""
    learning = workload.config.learning
    replay = dataclasses.replace(workload.config.replay, ratio=_LEARNING_BOUND)
    config = dataclasses.replace(workload.config, replay=replay)
    bare = BareUpdate(workload)
    bare.learn()
    steps = []

    def update() -> int:
        bare.learn()
        return 1

    with System(config) as system:
        system.run_until(lambda: system.parts.learning.updates > 0)

        def run_system() -> float:
            interval = system.run(pace.seconds, by_updates=True)
            steps.append(interval.steps / interval.seconds)
            return interval.updates / interval.seconds

        measures = {"system": run_system, "update": lambda: rate(update, pace.seconds)}
        measured = interleave(measures, pace.rounds)
    yield Result(
        name=f"learner: {workload.name}, updates",
        unit="updates/s",
        limit_name="bare update",
        ours=measured["system"],
        limits=measured["update"],
        target=0.95,
        conditions=conditions(
            config,
            batch=f"{learning.batch_sequences} sequences",
            messages=f"{config.launch.envs_per_server // config.launch.groups} environments each",
            environments=f"{config.launch.env_servers} x {config.launch.envs_per_server} "
            f"{workload.name}",
        ),
        details={"steps/s beside": spread(steps).median},
    )
