"""The learning thread's programs without the learning thread, on random experience."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from learner.acting.act_step import example_page
from learner.bench.measure.flops import count_flops
from learner.bench.rigs.workloads import Workload
from learner.learning.device_mapping import map_programs, replicate, stack_shards
from learner.learning.learn_step import build_learn_programs
from learner.learning.loop import fetched
from learner.learning.page_routing import Parcel, insert_parcels, parcels
from seedrl.config_checks import page_steps
from seedrl.replay.index import PageIndex
from seedrl.replay.replay import paged_replay, prioritized_memory
from seedrl.types import Page


class BareLearner:
    """Owns a learner state and a replay on the first n devices. Used by one thread.

    The workload's capacity and batch are those of each device.

    Attributes:
      agent: of the workload.
      page_steps: K.
      replay: the functions of the replay.
      memory: its state, leaves `[n, ...]`.
      programs: the learning thread's programs.
      state: the learner state.
      pages: the random pages, leaves `[I, ...]`, that every insertion brings.
    """

    def __init__(self, workload: Workload, *, pages_per_insert: int, num_devices: int = 1):
        config = workload.config
        self.agent = config.agent.build(workload.spec)
        self.page_steps = page_steps(config)
        self._devices = jax.local_devices()[:num_devices]
        capacity_pages = config.replay.capacity_steps // self.page_steps
        self.replay = paged_replay(
            window=self.agent.window,
            page_steps=self.page_steps,
            capacity_pages=capacity_pages,
            priority_exponent=config.replay.priority_exponent,
            initial_priorities=self.agent.initial_priorities,
        )
        self._indices = [
            PageIndex(
                capacity_pages=capacity_pages, window=self.agent.window, page_steps=self.page_steps
            )
            for _ in self._devices
        ]
        batch = config.learning.batch_sequences
        memory = prioritized_memory(
            self.replay,
            batch_per_device=batch,
            num_devices=len(self._devices),
            importance_exponent=config.replay.importance_exponent,
        )
        programs = build_learn_programs(self.agent, memory, batch_per_device=batch)
        self.programs = map_programs(programs, self._devices)
        page = example_page(self.agent, workload.spec, self.page_steps)
        self.memory = stack_shards(lambda: self.replay.init(page), self._devices)
        self.pages: Page = jax.device_put(random_pages(page, pages_per_insert), self._devices[0])
        state = jax.jit(programs.init)(jax.random.PRNGKey(config.seed))
        self.state = replicate(state, self._devices)

    @property
    def num_inserted(self) -> int:
        """Pages inserted so far."""
        return sum(index.num_inserted for index in self._indices)

    @property
    def updates(self) -> int:
        """Updates applied so far."""
        return int(self.state.updates)

    @property
    def flops_per_update(self) -> int:
        """Operations of the products in an update."""
        is_enabled = np.bool_(True)
        return count_flops(self.programs.learn, self.state, self.memory, (), is_enabled)

    @property
    def update_bytes(self) -> int:
        """Memory that an update needs for a while, on each device, beside state and replay."""
        learn: Any = self.programs.learn
        lowered = learn.lower(self.state, self.memory, (), np.bool_(True))
        return int(lowered.compile().memory_analysis().temp_size_in_bytes)

    def insert(self) -> int:
        """Inserts the pages, one for each of as many streams; returns their number."""
        num_pages = jax.tree.leaves(self.pages)[0].shape[0]
        self.memory = insert_parcels(self.programs, self.memory, self.pages, self.planned())
        jax.block_until_ready(self.memory.mass)
        return num_pages

    def planned(self) -> list[tuple[Parcel, np.ndarray]]:
        """Where the next pages go, one of each of as many streams, dealt to the devices."""
        streams = range(jax.tree.leaves(self.pages)[0].shape[0])
        dealt = [stream % len(self._indices) for stream in streams]
        sent = parcels(streams, dealt, num_rows=len(streams))
        return [(parcel, self._indices[parcel.shard].plan(parcel.streams)) for parcel in sent]

    def fill(self) -> None:
        """Inserts until nothing is empty."""
        while self.num_inserted < len(self._indices) * self.replay.capacity_pages:
            self.insert()

    def learn(self) -> Mapping[str, float]:
        """One update; returns its metrics, once they are there."""
        self.state, self.memory, numbers = self.programs.learn(
            self.state, self.memory, (), np.bool_(True)
        )
        return fetched(numbers)


def random_pages(page: Page, num_pages: int) -> Page:
    """Pages without structure: nothing about them can be compressed, skipped or predicted."""
    random = np.random.default_rng(0)

    def fill(leaf: jax.ShapeDtypeStruct) -> np.ndarray:
        shape = (num_pages, *leaf.shape)
        if np.issubdtype(leaf.dtype, np.floating):
            return random.standard_normal(shape, np.float32).astype(leaf.dtype)
        return random.integers(0, 256 if leaf.dtype == np.uint8 else 2, shape).astype(leaf.dtype)

    pages: Page = jax.tree.map(fill, page)
    timestep = pages.steps.timestep
    ordinary = timestep._replace(
        step_type=np.ones_like(timestep.step_type), discount=np.ones_like(timestep.discount)
    )
    return pages._replace(steps=pages.steps._replace(timestep=ordinary))
