"""The acting thread's actor without the acting thread, its slots always in the same page."""

import jax
import numpy as np

from learner.acting.act_step import build_act_programs, example_page
from learner.acting.actor import Actor, BatchShapes
from learner.extras.bench.workloads import Workload
from learner.runtime.channel import VersionedParams
from learner.serving.core import Batch
from seedrl.config import ServingConfig, page_steps
from seedrl.types import Page


class BareActor:
    """Owns an actor with parameters nobody has trained. Used by one thread.

    Attributes:
      shapes: the batch shapes that it compiles.
    """

    def __init__(self, workload: Workload, serving: ServingConfig):
        """`serving` says how many slots there are."""
        agent = workload.config.agent.build(workload.spec)
        self._num_training = serving.training_slots
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

    def pages(self) -> Page:
        """The open pages, leaves `[N, K, ...]` and carry leaves `[N, ...]`, copies."""
        return self._actor.take_pages(np.arange(self._num_training))
