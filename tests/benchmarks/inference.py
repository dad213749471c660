"""Inference: acting on a batch, from rows in host memory to actions there, against the network."""

import timeit
from collections.abc import Iterator

import jax
import numpy as np

from learner.acting.act_step import build_act_programs, example_page, example_timestep
from learner.acting.actor import Actor, BatchShapes
from learner.extras.bench import workloads
from learner.extras.bench.measuring import Pace, Result, apart, interleave, rate, spread
from learner.extras.bench.workloads import Workload, bare_forward
from learner.runtime.channel import VersionedParams
from learner.serving.batching import Pending
from learner.serving.core import Batch
from learner.serving.leases import SlotTable
from seedrl.config import page_steps
from seedrl.types import TimeStep
from tests.benchmarks.conditions import conditions

_STAGES = 100  # that are timed together


def run(pace: Pace) -> Iterator[Result]:
    """A result for each batch shape that Pong and CartPole compile for training."""
    for workload in (workloads.pong(), workloads.cartpole()):
        yield from apart(workload.config, results, workload, pace)


def results(workload: Workload, pace: Pace) -> Iterator[Result]:
    """A result for each batch shape of the workload."""
    actor = BareActor(workload)
    for num_rows in actor.shapes.act_rows:
        yield _result(workload, actor, num_rows, pace)


class BareActor:
    """The acting thread's actor without the acting thread, its slots always in the same page.

    Owns an actor with parameters nobody has trained. Used by one thread.

    Attributes:
      shapes: the batch shapes that it compiles.
    """

    def __init__(self, workload: Workload):
        agent, serving = workload.config.agent.build(workload.spec), workload.config.serving
        num_slots = serving.training_slots + serving.evaluation_slots
        self._page_steps = page_steps(workload.config)
        programs = build_act_programs(
            agent,
            example_page(agent, workload.spec, self._page_steps),
            num_training=serving.training_slots,
            num_slots=num_slots,
        )
        self.shapes = BatchShapes(
            workload.spec,
            num_training=serving.training_slots,
            num_evaluation=serving.evaluation_slots,
        )
        exploration = np.full(num_slots, 0.1, np.float32)
        state = programs.init(jax.random.PRNGKey(0))
        self._actor = Actor(programs, self.shapes, state, lambda _: exploration)
        params = jax.jit(agent.init)(jax.random.PRNGKey(1))
        self._frozen = VersionedParams(agent.actor_params(params), 0)
        self._steps = 0

    def act(self, batch: Batch) -> np.ndarray:
        """Acts as the acting thread does; the actions, one for each row of the batch."""
        batch.positions[:] = self._steps % self._page_steps
        self._steps += 1
        return self._actor.act(batch, self._actor.stage(batch), self._frozen)


def _make_batch(workload: Workload, num_rows: int) -> Batch:
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


def _result(workload: Workload, actor: BareActor, num_rows: int, pace: Pace) -> Result:
    """Acting on batches of `num_rows` rows."""
    batch = _make_batch(workload, num_rows)
    forward = bare_forward(workload, num_rows)
    actor.act(batch)

    def stage() -> None:
        actor.shapes.stage(batch, batch.slots)

    measured = interleave(
        {
            "act": lambda: rate(lambda: len(actor.act(batch)), pace.seconds),
            "forward": lambda: rate(forward, pace.seconds),
            "stage": lambda: timeit.timeit(stage, number=_STAGES) / _STAGES,
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
            "of which staging": 1e6 * spread(measured["stage"]).median,
        },
    )
