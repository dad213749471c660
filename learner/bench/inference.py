"""Inference: acting on a batch, from rows in host memory to actions there, against the network."""

import time
from collections.abc import Callable, Iterator

import jax
import numpy as np

from learner.acting.act_step import build_act_programs, example_page, example_timestep
from learner.acting.batch_shapes import BatchLadder
from learner.bench.measure import own_process
from learner.bench.measure.interleave import Pace, alternate, rate, spread
from learner.bench.measure.result import Row, conditions
from learner.bench.rigs import workloads
from learner.bench.rigs.bare_forward import bare_forward
from learner.bench.rigs.workloads import Subject
from learner.serving.batcher import Pending
from learner.serving.core import Batch
from learner.serving.leases import SlotTable
from seedrl.config import ServingConfig
from seedrl.config_checks import page_steps
from seedrl.types import Page, TimeStep


def run(pace: Pace) -> Iterator[Row]:
    """A row for each batch shape that Pong and CartPole compile for training."""
    for subject in (workloads.pong(), workloads.cartpole()):
        yield from own_process.rows(subject.config, rows, subject, pace)


def rows(subject: Subject, pace: Pace) -> Iterator[Row]:
    """A row for each batch shape of the subject."""
    actor = Actor(subject, subject.config.serving)
    for num_rows in actor.ladder.act_rows:
        yield row(subject, actor, num_rows, pace)


class Actor:
    """The acting thread's program without the thread. Owns an acting state; used by one thread."""

    def __init__(self, subject: Subject, serving: ServingConfig):
        """`serving` says how many slots there are."""
        self._agent = subject.config.agent.build(subject.spec)
        self.ladder = BatchLadder(
            subject.spec,
            num_training=serving.training_slots,
            num_evaluation=serving.evaluation_slots,
        )
        self._page_steps = page_steps(subject.config)
        self._num_training = serving.training_slots
        num_slots = serving.training_slots + serving.evaluation_slots
        self._programs = build_act_programs(
            self._agent,
            example_page(self._agent, subject.spec, self._page_steps),
            num_training=serving.training_slots,
            num_slots=num_slots,
            exploration=np.full(num_slots, 0.1, np.float32),
        )
        self._state = self._programs.init(jax.random.PRNGKey(0))
        self._params = jax.jit(self._agent.init)(jax.random.PRNGKey(1))
        self._steps = 0

    def act(self, batch: Batch) -> np.ndarray:
        """Acts as the acting thread does; the actions, one for each row of the batch."""
        position = np.int32(self._steps % self._page_steps)
        self._steps += 1
        slots, positions, timestep = self.ladder.stage(batch)
        positions[: len(batch.slots)] = position
        self._state, action = self._programs.act(
            self._state,
            self._params,
            np.int32(0),
            np.uint32(self._steps),
            slots,
            positions,
            timestep,
        )
        return np.asarray(action)[: len(batch.slots)]

    def pages(self) -> Page:
        """The pages under writing, leaves `[N, K, ...]` and carry leaves `[N, ...]`, copies."""
        return self._programs.take_pages(self._state, np.arange(self._num_training))


def make_batch(subject: Subject, num_rows: int) -> Batch:
    """A batch of one message with `num_rows` environments in the middle of their episodes."""
    group = SlotTable(training=num_rows, evaluation=0, seed=0).lease(num_rows, 1, "").groups[0]
    example = example_timestep(subject.spec)
    timestep = TimeStep(
        *jax.tree.map(lambda leaf: np.ones((num_rows, *leaf.shape), leaf.dtype), example)
    )
    pending = [Pending(group, 0, timestep, 0.0)]
    positions = np.zeros(num_rows, np.int32)
    rows = [slice(0, num_rows)]
    return Batch(pending, group.slots, group.streams, positions, False, 0.0, 0, rows)


def row(subject: Subject, actor: Actor, num_rows: int, pace: Pace) -> Row:
    """Acting on batches of `num_rows` rows."""
    batch = make_batch(subject, num_rows)
    forward = bare_forward(subject, num_rows)
    actor.act(batch)
    results = alternate(
        {
            "act": lambda: rate(lambda: len(actor.act(batch)), pace.seconds),
            "forward": lambda: rate(forward, pace.seconds),
            "stage": lambda: _microseconds(lambda: actor.ladder.stage(batch)),
        },
        pace.rounds,
    )
    return Row(
        name=f"inference: {subject.name}, batch of {num_rows}",
        unit="rows/s",
        limit_name="bare network",
        ours=results["act"],
        limits=results["forward"],
        target=0.85,
        conditions=conditions(
            subject.config,
            replay_ratio=None,
            window="",
            stride=None,
            messages=f"one of {num_rows} environments",
            environments=subject.name,
        ),
        details={
            "µs of a batch": 1e6 * num_rows / spread(results["act"]).median,
            "of which staging": spread(results["stage"]).median,
        },
    )


def _microseconds(work: Callable[[], object], repeats: int = 100) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        work()
    return 1e6 * (time.perf_counter() - start) / repeats
