"""The update of an agent on the on-policy queue, without threads, on random experience."""

import jax
import numpy as np

from learner.acting.act_step import example_page
from learner.bench.rigs.bare_learner import random_pages
from learner.bench.rigs.workloads import Workload
from learner.learning.device_mapping import map_programs, replicate, stack_shards
from learner.learning.learn_step import build_learn_programs
from learner.learning.loop import fetched
from learner.learning.page_routing import insert_parcels, parcels
from learner.session.geometry import plan_geometry, scale


class BareOnPolicyLearner:
    """Owns a learner state, and a queue that holds one batch. Used by one thread.

    Learning takes that batch again and again: the queue's host forgets what it has handed out, its
    memory does not.

    Attributes:
      rows_per_update: of a batch, those that bootstrap too.
    """

    def __init__(self, workload: Workload):
        config = workload.config
        geometry = plan_geometry(config)
        batch = config.learning.batch_sequences
        agent = config.agent.build(workload.spec)
        page = example_page(agent, workload.spec, geometry.page_steps)
        experience = config.replay.build(
            agent.window,
            page=page,
            initial_priorities=agent.initial_priorities,
            scale=scale(config, geometry),
        )
        programs = build_learn_programs(agent, experience.memory, batch_per_device=batch)
        self._programs = map_programs(programs, geometry.devices)
        self._state = replicate(
            jax.jit(programs.init)(jax.random.PRNGKey(config.seed)), geometry.devices
        )
        memory = stack_shards(lambda: experience.memory.init(page), geometry.devices)
        index = experience.index()
        sent = parcels(range(batch), [0] * batch, num_rows=batch)
        planned = [(parcel, index.plan(parcel.streams)) for parcel in sent]
        self._memory = insert_parcels(self._programs, memory, random_pages(page, batch), planned)
        self._draw = index.draw()[None]
        self.rows_per_update = batch * agent.window.length

    def learn(self) -> int:
        """One update; returns the rows that it takes, once it is done."""
        self._state, self._memory, numbers = self._programs.learn(
            self._state, self._memory, self._draw, np.bool_(True)
        )
        fetched(numbers)
        return self.rows_per_update
