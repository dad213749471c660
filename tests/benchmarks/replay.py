"""Replay: inserting and sampling against copying as many bytes, and the memory of a stored step."""

import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from learner.acting.act_step import example_page
from learner.extras.bench import workloads
from learner.extras.bench.measuring import Pace, Result, interleave, rate
from learner.extras.bench.workloads import Workload, random_pages
from learner.learning.device_mapping import map_programs, stack_shards
from learner.learning.learn_step import build_learn_programs
from learner.learning.page_routing import insert_parcels, parcels
from seedrl import config_io
from seedrl.config import page_steps
from seedrl.replay.buffer import Sample, paged_replay, prioritized_memory
from seedrl.replay.index import PageIndex
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec
from seedrl.types import Array, Page, Sequence, Tree
from tests.benchmarks.conditions import conditions

_CAPACITY_STEPS = 60_000
_PAGES_PER_INSERT = 16
# A group of Pong's environments, whose pages are full at the same time.
_MANY_PAGES_PER_INSERT = 64


def run(pace: Pace) -> Iterator[Result]:
    """The results for the settings of the R2D2 paper, in a replay of 60,000 frames."""
    yield from _results(*full_size(), pace)
    yield _insertion(*full_size(pages_per_insert=_MANY_PAGES_PER_INSERT), pace)


def full_size(pages_per_insert: int = _PAGES_PER_INSERT) -> "tuple[Workload, FullReplay]":
    """The settings of the R2D2 paper with a full replay of 60,000 frames."""
    frames = EnvSpec(ArraySpec((84, 84), "uint8"), DiscreteSpec(18))
    atari = Workload(name="Atari", config=config_io.load("atari_r2d2"), spec=frames)
    workload = workloads.scaled(atari, capacity_steps=_CAPACITY_STEPS)
    return workload, FullReplay(workload, pages_per_insert=pages_per_insert)


class FullReplay:
    """Owns a replay on the first device, full of random pages, as a learner has it.

    Used by one thread.

    Attributes:
      page_steps: K.
      replay: the functions of the replay.
      memory: its state, leaves `[1, ...]`.
      pages: the random pages, leaves `[I, ...]`, that every insertion brings.
    """

    def __init__(self, workload: Workload, *, pages_per_insert: int):
        config = workload.config
        agent = config.agent.build(workload.spec)
        self.page_steps = page_steps(config)
        devices = jax.local_devices()[:1]
        capacity_pages = config.replay.capacity_steps // self.page_steps
        self.replay = paged_replay(
            window=agent.window,
            page_steps=self.page_steps,
            capacity_pages=capacity_pages,
            priority_exponent=config.replay.priority_exponent,
            initial_priorities=agent.initial_priorities,
        )
        self._index = PageIndex(
            capacity_pages=capacity_pages, window=agent.window, page_steps=self.page_steps
        )
        batch = config.learning.batch_sequences
        memory = prioritized_memory(
            self.replay,
            batch_per_device=batch,
            importance_exponent=config.replay.importance_exponent,
        )
        programs = build_learn_programs(agent, memory, batch_per_device=batch)
        self._programs = map_programs(programs, devices)
        page = example_page(agent, workload.spec, self.page_steps)
        self.memory = stack_shards(lambda: self.replay.init(page), devices)
        self.pages: Page = jax.device_put(random_pages(page, pages_per_insert), devices[0])
        while self._index.num_inserted < capacity_pages:
            self.insert()

    def insert(self) -> int:
        """Inserts the pages, one for each of as many streams; returns their number."""
        num_pages = jax.tree.leaves(self.pages)[0].shape[0]
        sent = parcels(range(num_pages), [0] * num_pages, num_rows=num_pages)
        planned = [(parcel, self._index.plan(parcel.streams)) for parcel in sent]
        self.memory = insert_parcels(self._programs, self.memory, self.pages, planned)
        jax.block_until_ready(self.memory.sampling_weight)
        return num_pages


def _results(workload: Workload, full: FullReplay, pace: Pace) -> Iterator[Result]:
    yield _insertion(workload, full, pace)
    yield from _sampling(workload, full, pace)
    yield _memory(workload, full)


def _insertion(workload: Workload, full: FullReplay, pace: Pace) -> Result:
    copy = _memcpy(_num_bytes(full.pages), _num_bytes(full.memory), is_into_pool=True)
    num_pages = full.insert()
    sequences_per_page = full.page_steps / workload.config.agent.window.stride
    measured = interleave(
        {
            "insert": lambda: rate(lambda: full.insert() * sequences_per_page, pace.seconds),
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
            messages=f"{num_pages} pages of {full.page_steps} steps at once",
            environments=workload.name,
        ),
        details={"bytes per insertion": _num_bytes(full.pages)},
    )


class Sampling(NamedTuple):
    """Two programs on a full replay, and the bytes of the sequences that each draws.

    Attributes:
      sample: draws a batch and waits for it.
      update: draws a batch, gives its sequences new priorities, and waits for it.
      num_bytes: of a batch.
    """

    sample: Callable[[], None]
    update: Callable[[], None]
    num_bytes: int


def sampling(full: FullReplay, batch: int) -> Sampling:
    """Samples of `batch` sequences, compiled."""
    replay, key = full.replay, jax.random.PRNGKey(0)

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
        drawn, key = sample(full.memory, key)
        jax.block_until_ready(drawn)

    def update_once() -> None:
        nonlocal key
        full.memory, sequence, key = compiled(full.memory, key)
        jax.block_until_ready(sequence)

    # Compiled for the memory as an insertion leaves it, then as an update does.
    for warm_up in (update_once, update_once, sample_once):
        warm_up()
    num_bytes = _num_bytes(jax.eval_shape(sample, full.memory, key)[0].sequence)
    return Sampling(sample_once, update_once, num_bytes)


def _sampling(workload: Workload, full: FullReplay, pace: Pace) -> Iterator[Result]:
    batch = workload.config.learning.batch_sequences
    draws = sampling(full, batch)
    copy = _memcpy(draws.num_bytes, _num_bytes(full.memory), is_into_pool=False)
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


def _memory(workload: Workload, full: FullReplay) -> Result:
    steps = full.replay.capacity_pages * full.page_steps
    frame = sum(leaf.num_bytes for _, leaf in workload.spec.leaves())
    return Result(
        name="replay: memory per stored step",
        unit="bytes",
        limit_name="one frame",
        ours=(_num_bytes(full.memory) / steps,),
        limits=(float(frame),),
        target=1.15,
        is_cost=True,
        conditions=conditions(workload.config, environments=workload.name),
    )


def _memcpy(num_bytes: int, pool_bytes: int, *, is_into_pool: bool) -> Callable[[], object]:
    """Copies bytes to or from the next place of a pool: the limit of whatever only moves data.

    On a CPU this is numpy's copy in one thread, into memory that is already there; on an
    accelerator a compiled copy of the same size.
    """
    device = jax.local_devices()[0]
    if device.platform != "cpu":
        source = jax.device_put(jnp.zeros(num_bytes, jnp.uint8), device)
        program = jax.jit(jnp.copy)
        return lambda: jax.block_until_ready(program(source))
    # Written once: pages that the kernel has yet to give would make the first copies slow.
    pool = np.ones((max(1, pool_bytes // num_bytes), num_bytes), np.uint8)
    buffer = np.ones(num_bytes, np.uint8)
    places = itertools.cycle(pool)

    def copy() -> None:
        place = next(places)
        np.copyto(place, buffer) if is_into_pool else np.copyto(buffer, place)

    return copy


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
