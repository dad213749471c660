"""The plug-in's queue and its agent by themselves: order, and returns worked by hand."""

import jax
import numpy as np
from seedrl_plugin.fifo import QueueConfig
from seedrl_plugin.reinforce import ReinforceConfig, returns

from seedrl.agents.window import WindowSpec
from seedrl.replay.experience import Experience, Scale
from seedrl.types import Page, StepType, StoredStep, TimeStep

LENGTH, BATCH, SLOTS = 2, 3, 2
WINDOW = WindowSpec(burn_in=0, unroll=LENGTH, bootstrap=0, stride=LENGTH)


def _pages(numbers: list[int]) -> Page:
    number = np.repeat(np.asarray(numbers, np.int32)[:, None], LENGTH, axis=1)
    return Page(StoredStep((), number, (), ()), carry=(number[:, 0],))


def _queue(capacity: int) -> Experience:
    page = jax.tree.map(lambda leaf: leaf[0], _pages([0]))
    scale = Scale(1, BATCH, SLOTS, 2**30, "a device")
    config = QueueConfig(capacity=capacity)
    return config.build(WINDOW, page=page, initial_priorities=None, scale=scale)


def test_every_unroll_is_drawn_once_in_the_order_of_arrival() -> None:
    experience, random = _queue(capacity=7), np.random.default_rng(0)
    index, limiter = experience.index(), experience.limiter
    state = experience.memory.init(jax.tree.map(lambda leaf: leaf[0], _pages([0])))
    arrived, trained = 0, []
    while len(trained) < 60:
        limiter = limiter.holds([index.num_sequences])
        assert limiter.may_act() or limiter.may_learn()
        if index.has_room(SLOTS) and random.random() < 0.6:
            streams = random.permutation([5, 6, -1])  # the last is padding, or of another shard
            numbers = [arrived + int(np.sum(streams[:row] >= 0)) for row in range(3)]
            plan = index.plan(streams)
            numbers = [
                number if stream >= 0 else -1
                for number, stream in zip(numbers, streams, strict=True)
            ]
            state = experience.memory.insert(state, _pages(numbers), plan)
            arrived += SLOTS
        elif limiter.may_learn():
            drawn = experience.memory.sample(state, index.draw(), None, None)
            assert drawn.sequence.steps.action.shape == (LENGTH, BATCH)
            trained += drawn.sequence.carry[0].tolist()
            np.testing.assert_array_equal(drawn.sequence.steps.action[-1], trained[-BATCH:])
    assert trained == list(range(len(trained)))


def test_returns_end_with_the_episode() -> None:
    types = [StepType.FIRST, StepType.MID, StepType.LAST, StepType.FIRST, StepType.LAST]
    rewards, discounts = [0, 1, 2, 0, 4], [1, 1, 1, 1, 0]
    columns = [np.array(x, np.float32)[:, None] for x in (types, rewards, discounts)]
    found = returns(TimeStep(*columns, ()))[:, 0]
    # Row 2 was truncated: nothing of the next episode counts before it. Row 2's own is not trained.
    np.testing.assert_allclose(found, [1 + 0.9 * 2, 2, 0.9 * 4, 4, 0], rtol=1e-6)
    assert ReinforceConfig().window.length == 16
