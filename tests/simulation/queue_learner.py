"""A simulated learner whose experience is the on-policy queue."""

import jax

from seedrl.agents.agent import Agent
from seedrl.agents.window import WindowSpec
from seedrl.replay.experience import Experience, Scale
from seedrl.replay.queue import QueueConfig
from seedrl.types import Page
from tests.simulation.learner import PAGE_STEPS, TRAINING_SLOTS
from tests.simulation.program_learner import BATCH, EXPLORATION, ProgramLearner, Store

# A sequence is a page, so that acting is compiled once for both stores.
_WINDOW = WindowSpec(burn_in=0, unroll=PAGE_STEPS - 1, bootstrap=1, stride=PAGE_STEPS)
_SCALE = Scale(1, BATCH, TRAINING_SLOTS, 2**30, "a device")
_QUEUE = QueueConfig(ahead_updates=2, max_lag_updates=3)
_CAPACITY = _QUEUE.capacity_sequences(_SCALE)  # turns over


def _queue(agent: Agent, page: Page) -> Experience:
    return _QUEUE.build(
        _WINDOW, page=page, initial_priorities=agent.initial_priorities, scale=_SCALE
    )


class QueueLearner(ProgramLearner):
    """Every sequence is one page, and trained once."""

    store = Store(_WINDOW, PAGE_STEPS, _queue)

    def check(self) -> list[str]:
        """Every sequence that is in memory, and that those which do not wait were trained once."""
        snapshot = self.save()
        (index,) = snapshot.indices
        num_inserted, waiting = int(str(index["num_inserted"])), index["waiting"]
        assert isinstance(waiting, list)
        broken = self.check_versions(snapshot)
        if num_inserted != BATCH * int(snapshot.state.updates) + len(waiting):
            broken.append(f"{num_inserted} sequences arrived, {len(waiting)} wait")
        ahead = self.channel.limiter.now.metrics()["queue_updates"]
        if not len(waiting) / BATCH <= ahead < 2 + TRAINING_SLOTS / BATCH:
            broken.append(f"acting is {ahead} updates ahead, {len(waiting)} sequences wait")
        pages: Page = jax.tree.map(lambda leaf: leaf[0], snapshot.replay)
        for place in range(min(num_inserted, _CAPACITY)):
            page = jax.tree.map(lambda leaf, place=place: leaf[place], pages)
            where = f"page {place}"
            found = self._world.oracle.check_steps(where, page.steps, page.carry, EXPLORATION)
            # Of the last page that was put there: without updates that were skipped it is, or was,
            # for this one.
            due = (place + (num_inserted - 1 - place) // _CAPACITY * _CAPACITY) // BATCH
            if due - int(page.steps.version[0]) > 3:
                broken.append(f"page {place}, for update {due}, is of {page.steps.version}")
            if found is not None and found[1] % PAGE_STEPS:
                broken.append(f"page {place} begins with row {found[1]}")
        return broken
