"""Replay: inserting and sampling against copying as many bytes, and the memory of a stored step."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import numpy as np

from learner.extras.bench import workloads
from learner.extras.bench.measuring import Pace, Result, interleave, rate
from learner.extras.bench.workloads import Workload
from seedrl import config_io
from seedrl.replay.buffer import Sample
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec
from seedrl.types import Array, Sequence, Tree
from tests.benchmarks.bare_learner import BareLearner
from tests.benchmarks.conditions import conditions
from tests.benchmarks.memcpy import copy_into_pool, copy_out_of_pool

_CAPACITY_STEPS = 60_000
_PAGES_PER_INSERT = 16
# A group of Pong's environments, whose pages are full at the same time.
_MANY_PAGES_PER_INSERT = 64


class Sampling(NamedTuple):
    """Two programs on a learner's replay, and the bytes of the sequences that each draws.

    Attributes:
      sample: draws a batch and waits for it.
      update: draws a batch, gives its sequences new priorities, and waits for it.
      num_bytes: of a batch.
    """

    sample: Callable[[], None]
    update: Callable[[], None]
    num_bytes: int


def run(pace: Pace) -> Iterator[Result]:
    """The results for the settings of the R2D2 paper, in a replay of 60,000 frames."""
    yield from results(*full_size(), pace)
    yield insertion(*full_size(pages_per_insert=_MANY_PAGES_PER_INSERT), pace)


def full_size(pages_per_insert: int = _PAGES_PER_INSERT) -> tuple[Workload, BareLearner]:
    """The settings of the R2D2 paper with a replay of 60,000 frames, still empty."""
    workload = workloads.scaled(_atari(), capacity_steps=_CAPACITY_STEPS)
    return workload, BareLearner(workload, pages_per_insert=pages_per_insert)


def _atari() -> Workload:
    frames = EnvSpec(ArraySpec((84, 84), "uint8"), DiscreteSpec(18))
    return Workload(name="Atari", config=config_io.load("atari_r2d2"), spec=frames)


def results(workload: Workload, learner: BareLearner, pace: Pace) -> Iterator[Result]:
    """Fills the replay of `learner`, and measures it."""
    yield insertion(workload, learner, pace)
    yield from _sample(workload, learner, pace)
    yield _memory(workload, learner)


def insertion(workload: Workload, learner: BareLearner, pace: Pace) -> Result:
    """Fills the replay of `learner`, and measures how fast more goes in."""
    learner.fill()
    copy = copy_into_pool(_num_bytes(learner.pages), _num_bytes(learner.memory))
    num_pages = learner.insert()
    sequences_per_page = learner.page_steps / workload.config.agent.window.stride
    measured = interleave(
        {
            "insert": lambda: rate(lambda: learner.insert() * sequences_per_page, pace.seconds),
            "memcpy": lambda: rate(counted(copy, num_pages * sequences_per_page), pace.seconds),
        },
        pace.rounds,
    )
    return Result(
        name=f"replay: insert {num_pages} pages",
        unit="sequences/s",
        limit_name="memcpy of the same bytes",
        ours=measured["insert"],
        limits=measured["memcpy"],
        target=0.6,
        conditions=conditions(
            workload.config,
            messages=f"{num_pages} pages of {learner.page_steps} steps at once",
            environments=workload.name,
        ),
        details={"bytes per insertion": _num_bytes(learner.pages)},
    )


def sampling(learner: BareLearner, batch: int) -> Sampling:
    """Samples of `batch` sequences from the full replay of `learner`, compiled."""
    replay, key = learner.replay, jax.random.PRNGKey(0)

    # The replay has a leading axis of one device. Keys are split inside, as in a learning step.
    @jax.jit
    def sample(memory: Tree, key: Array) -> tuple[Sample, Array]:
        key, now = jax.random.split(key)
        return replay.sample(jax.tree.map(lambda leaf: leaf[0], memory), now, batch), key

    def update(memory: Tree, key: Array) -> tuple[Tree, Sequence, Array]:
        key, now = jax.random.split(key)
        shard = jax.tree.map(lambda leaf: leaf[0], memory)
        drawn = replay.sample(shard, now, batch)
        shard = replay.update_priorities(shard, drawn.index, drawn.probability + 1.0)
        return jax.tree.map(lambda leaf: leaf[None], shard), drawn.sequence, key

    compiled = jax.jit(update, donate_argnums=0)

    def sample_once() -> None:
        nonlocal key
        drawn, key = sample(learner.memory, key)
        jax.block_until_ready(drawn)

    def update_once() -> None:
        nonlocal key
        learner.memory, sequence, key = compiled(learner.memory, key)
        jax.block_until_ready(sequence)

    for warm_up in (sample_once, update_once):
        warm_up()
    num_bytes = _num_bytes(jax.eval_shape(sample, learner.memory, key)[0].sequence)
    return Sampling(sample_once, update_once, num_bytes)


def _sample(workload: Workload, learner: BareLearner, pace: Pace) -> Iterator[Result]:
    batch = workload.config.learning.batch_sequences
    draws = sampling(learner, batch)
    copy = copy_out_of_pool(draws.num_bytes, _num_bytes(learner.memory))
    measured = interleave(
        {
            "sample": lambda: rate(counted(draws.sample, batch), pace.seconds),
            "memcpy": lambda: rate(counted(copy, batch), pace.seconds),
            "sample and update": lambda: rate(counted(draws.update, batch), pace.seconds),
        },
        pace.rounds,
    )
    for name in ("sample", "sample and update"):
        yield Result(
            name=f"replay: {name}",
            unit="sequences/s",
            limit_name="memcpy of the same bytes",
            ours=measured[name],
            limits=measured["memcpy"],
            conditions=conditions(
                workload.config, batch=f"{batch} sequences", environments=workload.name
            ),
            details={"bytes per batch": draws.num_bytes},
        )


def _memory(workload: Workload, learner: BareLearner) -> Result:
    steps = learner.replay.capacity_pages * learner.page_steps
    frame = sum(leaf.num_bytes for _, leaf in workload.spec.leaves())
    return Result(
        name="replay: memory per stored step",
        unit="bytes",
        limit_name="one frame",
        ours=(_num_bytes(learner.memory) / steps,),
        limits=(float(frame),),
        target=1.15,
        is_cost=True,
        conditions=conditions(workload.config, environments=workload.name),
    )


def _num_bytes(tree: Tree) -> int:
    return sum(
        int(np.prod(leaf.shape)) * np.dtype(leaf.dtype).itemsize for leaf in jax.tree.leaves(tree)
    )


def counted(work: Callable[[], object], amount: float) -> Callable[[], float]:
    """Does the work and returns the amount, for `rate`."""

    def run() -> float:
        work()
        return amount

    return run
