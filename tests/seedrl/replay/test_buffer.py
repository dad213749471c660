"""The device functions: a literal example, coverage, bias over shards, donation."""

import functools

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest

from seedrl.agents.window import WindowSpec
from seedrl.replay.buffer import Replay, paged_replay
from seedrl.replay.index import PageIndex
from seedrl.types import Array, Page, StoredStep, TimeStep
from tests.chi_squared import exceeded_with

WINDOW = WindowSpec(burn_in=1, unroll=4, bootstrap=1, stride=2)


def first_reward(steps: StoredStep) -> Array:
    return steps.timestep.reward[0]


@functools.cache
def build(capacity: int, *, priority_exponent: float = 1.0) -> Replay:
    """A compiled replay of pages of two rows; the same for all tests, which saves compiling it."""
    replay = paged_replay(
        window=WINDOW,
        page_steps=2,
        capacity_pages=capacity,
        priority_exponent=priority_exponent,
        initial_priorities=first_reward,
    )
    return replay._replace(
        init=jax.jit(replay.init),
        insert=jax.jit(replay.insert, donate_argnums=0),
        sample=jax.jit(replay.sample, static_argnums=2),
        update_priorities=jax.jit(replay.update_priorities),
    )


def pages_of(steps: list[int]) -> Page:
    """Pages of two rows whose observation is the step number and reward 1 + the step number."""
    step = np.asarray(steps, np.int32)[:, None] + np.arange(2, dtype=np.int32)
    timestep = TimeStep(
        step_type=np.ones(step.shape, np.uint8),
        reward=1 + step.astype(np.float32),
        discount=np.ones(step.shape, np.float32),
        observation=step,
    )
    return Page(StoredStep(timestep, step, step, ()), carry=(step[:, 0] * 10,))


def example() -> Page:
    return jax.tree.map(lambda leaf: leaf[0], pages_of([0]))


def test_a_chain_of_pages_worked_by_hand() -> None:
    # Sequences have 6 rows, three pages of 2. Stream A is pages 0, 2, 3, 4; page 1 is of stream B.
    replay = build(6)
    plan = np.asarray([[0, 1, 2, 3, 4, 6], [6, 6, 0, 2, 3, 6], [6, 6, 6, 0, 2, 6]], np.int32)
    state = replay.insert(replay.init(example()), pages_of([0, 50, 2, 4, 6, 99]), plan)
    np.testing.assert_array_equal(state.next, [2, 6, 3, 4, 6, 6])
    np.testing.assert_array_equal(state.sampling_weight, [1, 0, 3, 0, 0, 0])
    np.testing.assert_array_equal(state.pages.steps.action[5], [0, 0])

    sample = replay.sample(state, jax.random.key(0), 4)
    np.testing.assert_array_equal(sample.index, [0, 2, 2, 2])
    np.testing.assert_array_equal(sample.probability, [0.25, 0.75, 0.75, 0.75])
    wanted = np.asarray([[0, 2, 2, 2]]) + np.arange(6)[:, None]
    np.testing.assert_array_equal(sample.sequence.steps.timestep.observation, wanted)
    np.testing.assert_array_equal(sample.sequence.carry[0], [0, 20, 20, 20])

    # The next page of stream A falls on page 5, then one of stream B evicts page 0.
    none = [6, 6, 6, 6]
    plan = np.asarray([[5, 0, *none], [4, 1, *none], [3, 6, *none]], np.int32)
    state = replay.insert(state, pages_of([8, 52, 99, 99, 99, 99]), plan)
    np.testing.assert_array_equal(state.next, [6, 0, 3, 4, 5, 6])
    np.testing.assert_array_equal(state.sampling_weight, [0, 0, 3, 5, 0, 0])


@pytest.mark.parametrize("batch_size", [pytest.param(1, marks=pytest.mark.gate), 16])
def test_sampling_frequencies_pass_a_chi_squared_test(batch_size: int) -> None:
    """Against p^α / Σ p^α, α = 0.6, with priorities given by insertion and by updates.

    Significance 0.1 per cent, keys 0 to 39. Draws of one batch are stratified, which can only make
    the statistic smaller: from below it is tested where a batch is one draw.
    """
    replay = build(16, priority_exponent=0.6)
    state = replay.init(example())
    index = PageIndex(capacity_pages=16, window=WINDOW, page_steps=2)
    for first in range(0, 48, 4):  # 24 pages: the ring goes round once and a half
        state = replay.insert(state, pages_of([2 * first, 2 * first + 2]), index.plan([0, 0]))
    starts = np.flatnonzero(state.sampling_weight)
    priorities = np.asarray(state.pages.steps.timestep.reward)[starts, 0].astype(np.float64)
    priorities[:5] = [50.0, 0.5, 3.0, 300.0, 7.0]
    state = replay.update_priorities(
        state, starts[:5].astype(np.int32), priorities[:5].astype(np.float32)
    )

    @jax.jit
    def draws(key: Array) -> tuple[Array, Array]:
        keys = jax.random.split(key, 1024 // batch_size)
        samples = jax.lax.map(lambda key: replay.sample(state, key, batch_size)[1:3], keys)
        return jax.tree.map(jnp.ravel, samples)

    drawn = [draws(jax.random.key(number)) for number in range(40)]
    found, probability = (np.concatenate(parts) for parts in zip(*drawn, strict=True))
    share = np.zeros(16)
    share[starts] = priorities**0.6 / np.sum(priorities**0.6)
    np.testing.assert_allclose(probability, share[found], rtol=1e-5)
    counts = np.bincount(found, minlength=16)
    assert set(np.flatnonzero(counts)) <= set(starts)
    expected = share[starts] * len(found)
    statistic = np.sum((counts[starts] - expected) ** 2 / expected)
    assert expected.min() > 5
    assert statistic < exceeded_with(1e-3, len(starts) - 1)
    assert batch_size > 1 or statistic > exceeded_with(1 - 1e-3, len(starts) - 1)
