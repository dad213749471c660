"""A simulated learner whose experience is the plug-in's first-in-first-out queue of unrolls."""

import jax
from seedrl_plugin.fifo import QueueConfig

from seedrl.agents.agent import Agent
from seedrl.agents.window import WindowSpec
from seedrl.replay.experience import Experience, Scale
from seedrl.types import Page
from tests.simulation.learner import PAGE_STEPS, TRAINING_SLOTS
from tests.simulation.program_learner import BATCH, ProgramLearner, Store

_CAPACITY = 24  # turns over
_UNROLL = PAGE_STEPS  # so that acting is compiled once for both stores
_WINDOW = WindowSpec(burn_in=0, unroll=_UNROLL, bootstrap=0, stride=_UNROLL)


def _queue(agent: Agent, page: Page) -> Experience:
    scale = Scale(1, BATCH, TRAINING_SLOTS, 2**30, "a device")
    config = QueueConfig(capacity=_CAPACITY)
    return config.build(
        _WINDOW, page=page, initial_priorities=agent.initial_priorities, scale=scale
    )


class QueueLearner(ProgramLearner):
    """Every unroll is one page, and trained once."""

    store = Store(_WINDOW, _UNROLL, _queue)

    def check(self) -> list[str]:
        """Every unroll that is held, and that the others were trained once."""
        snapshot = self.save()
        (index,) = snapshot.indices
        num_inserted, waiting = int(str(index["num_inserted"])), index["waiting"]
        assert isinstance(waiting, list)
        broken = self.check_versions(snapshot)
        if num_inserted != BATCH * int(snapshot.state.updates) + len(waiting):
            broken.append(f"{num_inserted} unrolls arrived, {len(waiting)} wait: {snapshot.state}")
        pages: Page = jax.tree.map(lambda leaf: leaf[0], snapshot.replay)
        for place in range(min(num_inserted, _CAPACITY)):
            page = jax.tree.map(lambda leaf, place=place: leaf[place], pages)
            found = self.check_rows(f"page {place}", page.steps, page.carry)
            if found is not None and found[1] % _UNROLL:
                broken.append(f"page {place} begins with row {found[1]}")
        return broken
