"""The on-policy queue: every sequence once, in order of arrival, on one device or several."""

import functools
from typing import Any

import jax
import numpy as np
import pytest

from seedrl.agents.window import WindowSpec
from seedrl.errors import ConfigError
from seedrl.replay.experience import Experience, Scale
from seedrl.replay.index import QueueIndex, by_slot, by_turns, stale_pages
from seedrl.replay.queue import QueueConfig
from seedrl.types import Page, StoredStep

BATCH, SLOTS, AHEAD = 3, 4, 2
WINDOW = WindowSpec(burn_in=0, unroll=1, bootstrap=1, stride=2)
LENGTH = WINDOW.length


def pages_of(numbers: list[int]) -> Page:
    """Pages that say their number in every row and in the carry."""
    number = np.repeat(np.asarray(numbers, np.int32)[:, None], LENGTH, axis=1)
    return Page(StoredStep((), number, (), ()), carry=(number[:, 0],))


PAGE = jax.tree.map(lambda leaf: leaf[0], pages_of([0]))


def built(num_devices: int = 1, device_bytes: int = 2**30, ahead: int = AHEAD) -> Experience:
    scale = Scale(num_devices, BATCH, SLOTS, device_bytes, "a device")
    config = QueueConfig(ahead_updates=ahead)
    config.check(WINDOW, training_slots=SLOTS, total_steps=1)
    given: Any = None
    return config.build(WINDOW, page=PAGE, initial_priorities=given, scale=scale)


@functools.cache
def jitted(num_devices: int) -> tuple[Any, Any]:
    memory = built(num_devices).memory
    sample = lambda state, draw: memory.sample(state, draw, None, lambda x: x)  # noqa: E731
    return jax.jit(memory.insert), jax.jit(sample)


@pytest.mark.parametrize("num_devices", [1, 2])
def test_every_sequence_is_drawn_once_in_order_of_arrival(num_devices: int) -> None:
    experience, random = built(num_devices), np.random.default_rng(num_devices)
    insert, sample = jitted(num_devices)
    indices = [experience.index() for _ in range(num_devices)]
    states = [experience.memory.init(PAGE) for _ in range(num_devices)]
    limiter = experience.limiter
    on_their_way: list[int] = []
    num_completed, trained, longest = 0, [], 0
    while len(trained) < 30 * BATCH * num_devices:
        limiter = limiter.holds([index.num_sequences for index in indices])
        # Whatever is on its way arrives: then one of the two may continue.
        assert limiter.may_act() or limiter.may_learn() or on_their_way
        what = random.choice(["act", "arrive", "learn"])
        if what == "act" and limiter.may_act():
            more = int(random.integers(1, SLOTS + 1))
            on_their_way += range(num_completed, num_completed + more)
            num_completed += more
            limiter = limiter.acted(0, more)
        elif what == "arrive" and on_their_way:
            assert all(index.has_room(SLOTS) for index in indices)  # so much as may arrive at once
            arrived, on_their_way = on_their_way[:SLOTS], on_their_way[SLOTS:]
            before = sum(index.num_inserted for index in indices)
            owners = experience.shard_of([7] * len(arrived), before, num_devices)
            padding = [-1] * (SLOTS - len(arrived))
            for shard, index in enumerate(indices):
                streams = [5 if owner == shard else -1 for owner in owners] + padding
                plan = index.plan(streams)
                assert plan.dtype == np.int32
                states[shard] = insert(states[shard], pages_of(arrived + padding), plan)
        elif what == "learn" and limiter.may_learn():
            batches = [sample(states[i], index.draw()) for i, index in enumerate(indices)]
            limiter = limiter.took()
            for batch in batches:
                assert batch.sequence.steps.action.shape == (LENGTH, BATCH)
                np.testing.assert_array_equal(batch.weights, np.ones(BATCH))
                rows = batch.sequence.steps.action
                np.testing.assert_array_equal(rows, [batch.sequence.carry[0]] * LENGTH)
            # The oldest of all, whichever shard they were dealt to.
            trained += sorted(number for batch in batches for number in rows_of(batch))
        longest = max(longest, num_completed - len(trained))
    assert trained == list(range(len(trained)))
    limit = AHEAD * BATCH * num_devices
    assert limit <= longest < limit + SLOTS  # it was full, and never by more than a batch of acting
    counted = [experience.accounts(index) for index in indices]
    assert sum(found["taken"] for found in counted) == len(trained)
    waiting = sum(found["waiting"] for found in counted)
    assert waiting == num_completed - len(on_their_way) - len(trained)


def test_in_rounds_an_update_takes_all_that_waits_and_repeats_weigh_nothing() -> None:
    scale = Scale(2, BATCH, SLOTS, 2**30, "a device", in_rounds=True)
    given: Any = None
    experience = QueueConfig().build(WINDOW, page=PAGE, initial_priorities=given, scale=scale)
    limiter, indices = experience.limiter, [experience.index() for _ in range(2)]
    insert, sample = jitted(2)
    for shard, numbers in enumerate([[10, 11], []]):  # of four that one round without two has
        state = experience.memory.init(PAGE)
        if numbers:
            state = insert(state, pages_of(numbers), indices[shard].plan([1] * len(numbers)))
            limiter = limiter.acted(0, 2).holds([index.num_sequences for index in indices])
            assert limiter.may_learn() and limiter.may_act()
        batch = sample(state, indices[shard].draw())
        if numbers:
            assert rows_of(batch) == [10, 11, 10]
            np.testing.assert_array_equal(batch.weights, np.float32([1.5, 1.5, 0]))
        else:  # which the learn step takes for an empty shard
            np.testing.assert_array_equal(batch.weights, np.zeros(BATCH))
    limiter = limiter.took().holds([index.num_sequences for index in indices])
    assert not limiter.may_learn() and limiter.may_act()
    assert limiter.metrics() == {"queue_updates": 0}
    assert [index.accounts()["taken"] for index in indices] == [2, 0]
    state = indices[0].state()
    assert state["waiting"] == [] and state["num_inserted"] == 2


def rows_of(batch: Any) -> list[int]:
    return batch.sequence.steps.action[0].tolist()


def test_pages_are_dealt_by_turns_whatever_slots_they_are_from() -> None:
    assert by_turns([0, 0, 2, 2, 4], 3, 2) == [1, 0, 1, 0, 1]
    assert by_slot([0, 0, 2, 3, 4], 3, 2) == [0, 0, 0, 1, 0]


def test_a_queue_resumes_with_what_waited() -> None:
    index = QueueIndex(capacity_sequences=7, batch=2)
    index.plan([1, -1, 1, 1, 1, 1])
    index.draw()
    index.plan([1, 1, 1])
    state = index.state()
    resumed = QueueIndex(capacity_sequences=7, batch=2)
    resumed.restore(state)
    assert resumed.accounts() == {"requeued": 6, "taken": 0, "waiting": 6}
    assert resumed.num_inserted == 8
    assert not resumed.has_room(2)
    while index.num_sequences >= 2:
        np.testing.assert_array_equal(resumed.draw(), index.draw())
    np.testing.assert_array_equal(resumed.plan([3, -1, 3]), index.plan([3, -1, 3]))
    other = QueueIndex(capacity_sequences=8, batch=2)
    with pytest.raises(ValueError) as caught:
        other.restore(state)
    assert "capacity_sequences" in str(caught.value)


def test_a_page_is_stale_if_it_would_be_trained_above_the_bound() -> None:
    # Of batches of 2, with 3 that wait and 10 updates: they would be for updates 11, 12, 12, 13.
    assert stale_pages([7, 8, 8, 9], 10, 3, batch=2, max_lag=4) == []
    # Without the first, the second is for 11, the last for 12.
    assert stale_pages([6, 7, 7, 8], 10, 3, batch=2, max_lag=4) == [0, 2]
    assert stale_pages([], 10, 3, batch=2, max_lag=4) == []


def test_the_bound_of_the_lag_is_above_what_acting_may_be_ahead() -> None:
    bound = functools.partial(QueueConfig.lag_bound, training_slots=40, batch_sequences=16)
    config = functools.partial(QueueConfig, ahead_updates=2)
    assert bound(config(), publish_every_updates=3) == 2 + 3 + 8 * 40 // 16
    assert bound(config(max_lag_updates=5), publish_every_updates=3) == 5
    with pytest.raises(ConfigError) as caught:
        bound(config(max_lag_updates=4), publish_every_updates=3)
    assert "replay.max_lag_updates" in str(caught.value)


@pytest.mark.parametrize("window", [WindowSpec(0, 20, 1, 20), WindowSpec(40, 80, 5, 40)])
def test_sequences_that_overlap_are_refused(window: WindowSpec) -> None:
    with pytest.raises(ConfigError) as caught:
        QueueConfig().check(window, training_slots=2, total_steps=1)
    assert "agent.window.stride" in str(caught.value)


def test_a_queue_that_no_device_can_hold_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        built(device_bytes=14 * 12 - 1)
    assert "replay.ahead_updates" in str(caught.value)
    built(device_bytes=14 * 12)
