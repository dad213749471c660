"""The learning thread's programs without the learning thread, on random experience."""

from collections.abc import Mapping

import jax
import numpy as np

from learner.acting.act_step import example_page
from learner.extras.bench.workloads import Workload, random_pages
from learner.learning.device_mapping import map_programs, replicate, stack_shards
from learner.learning.learn_step import build_learn_programs
from learner.learning.loop import fetched
from learner.learning.page_routing import Parcel, insert_parcels, parcels
from seedrl.config import page_steps
from seedrl.replay.buffer import paged_replay, prioritized_memory
from seedrl.replay.index import PageIndex
from seedrl.types import Page


class BareLearner:
    """Owns a learner state and a replay on the first device. Used by one thread.

    Attributes:
      agent: of the workload.
      page_steps: K.
      replay: the functions of the replay.
      memory: its state, leaves `[1, ...]`.
      programs: the learning thread's programs.
      state: the learner state.
      pages: the random pages, leaves `[I, ...]`, that every insertion brings.
    """

    def __init__(self, workload: Workload, *, pages_per_insert: int):
        config = workload.config
        self.agent = config.agent.build(workload.spec)
        self.page_steps = page_steps(config)
        devices = jax.local_devices()[:1]
        capacity_pages = config.replay.capacity_steps // self.page_steps
        self.replay = paged_replay(
            window=self.agent.window,
            page_steps=self.page_steps,
            capacity_pages=capacity_pages,
            priority_exponent=config.replay.priority_exponent,
            initial_priorities=self.agent.initial_priorities,
        )
        self._index = PageIndex(
            capacity_pages=capacity_pages, window=self.agent.window, page_steps=self.page_steps
        )
        batch = config.learning.batch_sequences
        memory = prioritized_memory(
            self.replay,
            batch_per_device=batch,
            importance_exponent=config.replay.importance_exponent,
        )
        programs = build_learn_programs(self.agent, memory, batch_per_device=batch)
        self.programs = map_programs(programs, devices)
        page = example_page(self.agent, workload.spec, self.page_steps)
        self.memory = stack_shards(lambda: self.replay.init(page), devices)
        self.pages: Page = jax.device_put(random_pages(page, pages_per_insert), devices[0])
        state = jax.jit(programs.init)(jax.random.PRNGKey(config.seed))
        self.state = replicate(state, devices)

    def insert(self) -> int:
        """Inserts the pages, one for each of as many streams; returns their number."""
        num_pages = jax.tree.leaves(self.pages)[0].shape[0]
        self.memory = insert_parcels(self.programs, self.memory, self.pages, self.planned())
        jax.block_until_ready(self.memory.sampling_weight)
        return num_pages

    def planned(self) -> list[tuple[Parcel, np.ndarray]]:
        """Where the next pages go, one of each of as many streams."""
        streams = range(jax.tree.leaves(self.pages)[0].shape[0])
        sent = parcels(streams, [0] * len(streams), num_rows=len(streams))
        return [(parcel, self._index.plan(parcel.streams)) for parcel in sent]

    def fill(self) -> None:
        """Inserts until nothing is empty."""
        while self._index.num_inserted < self.replay.capacity_pages:
            self.insert()

    def learn(self) -> Mapping[str, float]:
        """One update; returns its metrics, once they are there."""
        self.state, self.memory, numbers = self.programs.learn(
            self.state, self.memory, (), np.float32(0)
        )
        return fetched(numbers)
