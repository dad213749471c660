"""Inference: acting on a batch, from rows in host memory to actions there, against the network."""

import time
from collections.abc import Callable, Iterator

import jax
import numpy as np

from learner.acting.act_step import example_timestep
from learner.extras.bench import workloads
from learner.extras.bench.measuring import Pace, Result, apart, interleave, rate, spread
from learner.extras.bench.workloads import Workload, bare_forward
from learner.serving.batching import Pending
from learner.serving.core import Batch
from learner.serving.leases import SlotTable
from seedrl.types import TimeStep
from tests.benchmarks.bare_actor import BareActor
from tests.benchmarks.conditions import conditions


def run(pace: Pace) -> Iterator[Result]:
    """A result for each batch shape that Pong and CartPole compile for training."""
    for workload in (workloads.pong(), workloads.cartpole()):
        yield from apart(workload.config, results, workload, pace)


def results(workload: Workload, pace: Pace) -> Iterator[Result]:
    """A result for each batch shape of the workload."""
    actor = BareActor(workload, workload.config.serving)
    for num_rows in actor.shapes.act_rows:
        yield result(workload, actor, num_rows, pace)


def make_batch(workload: Workload, num_rows: int) -> Batch:
    """A batch of one message with `num_rows` environments in the middle of their episodes."""
    group = SlotTable(training=num_rows, evaluation=0, seed=0).lease(num_rows, 1, "").groups[0]
    example = example_timestep(workload.spec)
    timestep = TimeStep(
        *jax.tree.map(lambda leaf: np.ones((num_rows, *leaf.shape), leaf.dtype), example)
    )
    pending = [Pending(group, 0, timestep, 0.0)]
    positions = np.zeros(num_rows, np.int32)
    rows = [slice(0, num_rows)]
    return Batch(pending, group.slots, group.streams, positions, "training", 0.0, 0, rows)


def result(workload: Workload, actor: BareActor, num_rows: int, pace: Pace) -> Result:
    """Acting on batches of `num_rows` rows."""
    batch = make_batch(workload, num_rows)
    forward = bare_forward(workload, num_rows)
    actor.act(batch)
    measured = interleave(
        {
            "act": lambda: rate(lambda: len(actor.act(batch)), pace.seconds),
            "forward": lambda: rate(forward, pace.seconds),
            "stage": lambda: _microseconds(lambda: actor.shapes.stage(batch, batch.slots)),
        },
        pace.rounds,
    )
    return Result(
        name=f"inference: {workload.name}, batch of {num_rows}",
        unit="rows/s",
        limit_name="bare network",
        ours=measured["act"],
        limits=measured["forward"],
        target=0.85,
        conditions=conditions(
            workload.config,
            replay_ratio=None,
            window="",
            stride=None,
            messages=f"one of {num_rows} environments",
            environments=workload.name,
        ),
        details={
            "µs of a batch": 1e6 * num_rows / spread(measured["act"]).median,
            "of which staging": spread(measured["stage"]).median,
        },
    )


def _microseconds(work: Callable[[], object], repeats: int = 100) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        work()
    return 1e6 * (time.perf_counter() - start) / repeats
