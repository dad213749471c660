"""The device's side of experience: the paged prioritized replay, and the on-policy queue.

Both are bundles of pure functions with static shapes.
"""

from collections.abc import Callable
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from seedrl.agents.window import WindowSpec
from seedrl.replay.experience import Batch, Memory
from seedrl.replay.index import check_geometry
from seedrl.replay.sampling import stratified_draw
from seedrl.rl.priorities import MIN_SAMPLING_WEIGHT, importance_weights, sampling_weight_of
from seedrl.types import Array, Page, Sequence, StoredStep, Tree


class ReplayState(NamedTuple):
    """One shard's experience.

    Where M sequences start in a page, the m-th of page p has the index p M + m.
    """

    pages: Page  # leaves `[P, K, ...]`, carry leaves `[P, ...]`
    next: Array  # `[P] int32`, the page that follows in the same stream; P for none (yet)
    # `[P M] float32`, priority^α of each sequence; 0 where there is no complete one.
    sampling_weight: Array


class Sample(NamedTuple):
    """A batch drawn from one shard."""

    sequence: Sequence  # leaves `[T, B, ...]`, carry leaves `[B, ...]`; T is the window's length
    index: Array  # `[B] int32`, of each sequence: what `update_priorities` wants back
    probability: Array  # `[B] float32`, of each draw within this shard


class Replay(NamedTuple):
    """A paged prioritized replay of one device."""

    capacity_pages: int  # P
    # `page -> ReplayState`, empty, from the shapes of one example page (leaves `[K, ...]`, carry
    # leaves `[...]`; arrays or shape structs).
    init: Callable[[Page], ReplayState]
    # `(state, pages, plan) -> ReplayState`; leaves `[I, K, ...]`, carry leaves `[I, ...]`, plan
    # `[3, I] int32`, see `PageIndex.plan`. Consumes `state`: donate it.
    insert: Callable[[ReplayState, Page, Array], ReplayState]
    # `(state, key, batch_size) -> Sample`; consumes the key. Every shard must hold a sequence
    # before its first batch: an empty one answers with zeros and probability 0.
    sample: Callable[[ReplayState, Array, int], Sample]
    # `(state, index [B] int32, priorities [B] float32) -> ReplayState`. Keeps the sampling weight
    # of a priority that is not finite or is negative, and of a page that is not sampleable. Where
    # an index occurs several times, one of its priorities is kept.
    update_priorities: Callable[[ReplayState, Array, Array], ReplayState]


def paged_replay(
    *,
    window: WindowSpec,
    page_steps: int,
    capacity_pages: int,
    priority_exponent: float,
    initial_priorities: Callable[[StoredStep], Array],
) -> Replay:
    """Builds the replay of one shard: P pages of K steps, and P(i) = p_i^α / Σ p^α.

    The stride of the window must be a whole number of pages, or a page of strides: then M > 1
    sequences start in each, and pages have no carry. For `initial_priorities` see `Agent`.

    Source: Schaul et al. 2016 (proportional variant); Kapturowski et al. 2019, section 2.3
    (sequences).
    """
    check_geometry(window, page_steps, capacity_pages)
    assert capacity_pages * page_steps < 2**31, "time steps are numbered in int32"
    starts_in_page = window.starts_in_page(page_steps)

    def init(page: Page) -> ReplayState:
        chex.assert_tree_shape_prefix(page.steps, (page_steps,))
        assert starts_in_page == 1 or not jax.tree.leaves(page.carry), "no carry inside a page"
        return ReplayState(
            pages=_empty_pool(page, capacity_pages),
            next=jnp.full((capacity_pages,), capacity_pages, jnp.int32),
            sampling_weight=jnp.zeros((capacity_pages * starts_in_page,), jnp.float32),
        )

    def insert(state: ReplayState, pages: Page, plan: Array) -> ReplayState:
        num_pages = plan.shape[1]
        chex.assert_shape(plan, (3, num_pages))
        chex.assert_type(plan, jnp.int32)
        page, previous, completed = plan
        # Pages, then links, then weights, because a call may bring several pages of one stream.
        # 1. The pages overwrite whatever lies where they go, whose link and weight are cleared.
        stored = _write_pages(state.pages, pages, page)
        weights = state.sampling_weight.at[sequences_of(page)].set(0.0, mode="drop")
        link = state.next.at[page].set(capacity_pages, mode="drop")
        # 2. Links to the new pages, after the clearing: a predecessor may be new itself.
        link = link.at[previous].set(page, mode="drop")
        # 3. Completed sequences get their initial weight, after all links: their pages may be of
        # this call. `PageIndex.plan` names none whose start is overwritten in the same call.
        index = sequences_of(completed)
        timestep = stored.steps.timestep._replace(observation=())
        priorities = initial_priorities(
            gather(stored.steps._replace(timestep=timestep), link, index)
        )
        chex.assert_shape(priorities, index.shape)
        new = sampling_weight_of(priorities.astype(jnp.float32), priority_exponent)
        # A refused priority becomes the mean: the sequence stays countable, and is soon drawn and
        # corrected. Under `cond`, because it hardly ever happens: otherwise every insertion would
        # read all weights.
        is_refused = (index < weights.shape[0]) & (new <= 0)
        mean = jax.lax.cond(jnp.any(is_refused), _mean_weight, lambda _: jnp.float32(1.0), weights)
        new = jnp.where(new > 0, new, mean)
        return ReplayState(stored, link, weights.at[index].set(new, mode="drop"))

    def sequences_of(pages: Array) -> Array:
        # The indices of all sequences that start in `pages [I] int32`: `[I M] int32`.
        starts = jnp.arange(starts_in_page, dtype=pages.dtype)
        return (pages[:, None] * starts_in_page + starts[None]).reshape(-1)

    def sample(state: ReplayState, key: Array, batch_size: int) -> Sample:
        index, probability = stratified_draw(state.sampling_weight, key, batch_size)
        sequence = Sequence(
            steps=gather(state.pages.steps, state.next, index),
            carry=jax.tree.map(
                lambda pool: pool.at[index // starts_in_page].get(mode="clip"), state.pages.carry
            ),
        )
        return Sample(sequence, index, probability)

    def gather(steps: StoredStep, link: Array, index: Array) -> StoredStep:
        # Time-major: `[P, K, ...]`, `[P]` and `[B]` give `[T, B, ...]`. Counted from the beginning
        # of the page that a sequence starts in, time step t lies in page t // K of the chain, at
        # offset t % K. An index beyond the last is clipped: its time steps mean nothing.
        chain = [index // starts_in_page]
        for _ in range(window.pages_per_sequence(page_steps) - 1):
            chain.append(link.at[chain[-1]].get(mode="clip"))
        start = index % starts_in_page * window.stride
        rows = jnp.arange(window.length)[:, None] + start[None]
        page = jnp.take_along_axis(jnp.stack(chain), rows // page_steps, axis=0, mode="clip")
        offset = rows % page_steps
        # One gather per leaf from the pool straight into the result, so no page is copied whole.
        # Of 125 time steps of 64 sequences of 84 x 84 bytes, on two CPU cores: 4.3 ms, through
        # flattened time steps 4.2 ms, by whole pages 5.6 ms, by a loop of slices 13.6 ms.
        return jax.tree.map(lambda pool: pool.at[page, offset].get(mode="clip"), steps)

    def update_priorities(state: ReplayState, index: Array, priorities: Array) -> ReplayState:
        chex.assert_rank([index, priorities], 1)
        chex.assert_equal_shape([index, priorities])
        chex.assert_type([index, priorities], [jnp.int32, jnp.float32])
        old = state.sampling_weight.at[index].get(mode="clip")
        new = sampling_weight_of(priorities, priority_exponent)
        # An old weight of 0 stays: no sequence is complete there (yet, or any more).
        new = jnp.where((new > 0) & (old > 0), new, old)
        weights = state.sampling_weight.at[index].set(new, mode="drop")
        return state._replace(sampling_weight=weights)

    return Replay(capacity_pages, init, insert, sample, update_priorities)


def _mean_weight(weights: Array) -> Array:
    # Sequences of which nothing can be learned do not count: with them in it, the mean of equal
    # weights would be less than each, and newer sequences would be drawn less and less.
    num_useful = jnp.sum(weights > MIN_SAMPLING_WEIGHT)
    return jnp.where(num_useful > 0, jnp.sum(weights) / jnp.maximum(num_useful, 1), 1.0)


def prioritized_memory(
    replay: Replay, *, batch_per_device: int, importance_exponent: float
) -> Memory:
    """A replay of n devices, B/n draws on each, that are weighted for their bias by β.

    The device draws: `draw` is `()`.
    """

    def sample(
        state: ReplayState, draw: tuple[()], key: Array, largest: Callable[[Array], Array]
    ) -> Batch:
        del draw
        drawn = replay.sample(state, key, batch_per_device)
        weights = importance_weights(drawn.probability, importance_exponent, largest)
        return Batch(drawn.sequence, weights, drawn.index)

    return Memory(replay.init, replay.insert, sample, replay.update_priorities)


def queue_memory(capacity_sequences: int) -> Memory:
    """The memory of one device: its state is a `Page` with leaves `[C, K, ...]`, carry `[C, ...]`.

    `QueueIndex` alone knows what lies where: `plan`, `[I] int32`, says where I pages go, C for one
    that is not stored; `draw`, `[B] int32`, from where a batch is taken. What an update writes
    back changes nothing: a sequence is never drawn again.

    All weights are 1, unless `draw` repeats sequences to fill the batch, see `QueueIndex.draw`: a
    repeat has weight 0, so nothing is learned from it, and the weights of the others add up to B.
    """

    def sample(state: Page, draw: Array, key: Array, largest: object) -> Batch:
        del key, largest  # the host has drawn
        counts = draw >= 0
        draw = jnp.where(counts, draw, -1 - draw)
        weights = jnp.where(counts, draw.size / jnp.maximum(jnp.sum(counts), 1), 0.0)
        sequence = Sequence(
            steps=jax.tree.map(lambda pool: jnp.swapaxes(pool[draw], 0, 1), state.steps),
            carry=jax.tree.map(lambda pool: pool[draw], state.carry),
        )
        return Batch(sequence, weights.astype(jnp.float32), indices=())

    return Memory(
        init=lambda page: _empty_pool(page, capacity_sequences),
        insert=_write_pages,
        sample=sample,
        write_back=lambda state, indices, priorities: state,
    )


def _empty_pool(page: Page, capacity: int) -> Page:
    # Never jnp.empty: it is uninitialised since jax 0.11.
    pool: Page = jax.tree.map(lambda leaf: jnp.zeros((capacity, *leaf.shape), leaf.dtype), page)
    return pool


def _write_pages(pool: Page, new: Page, index: Array) -> Page:
    # Leaves `[P, ...]` with `[I, ...]` at `index [I] int32`; beyond the pool nothing is written.
    chex.assert_type(index, jnp.int32)
    chex.assert_tree_shape_prefix(new, index.shape)
    chex.assert_trees_all_equal_dtypes(pool, new)

    def write(pool: Tree, new: Array) -> Array:
        # In a shard of one device, as pmap hands it over, XLA:CPU would copy the whole pool first
        # if another axis is 1 too (pages of one step, say) and its items have four bytes: with the
        # axis of devices dropped its layout is ambiguous. So the axis is added again for writing.
        return pool[None].at[0, index].set(new, mode="drop")[0]

    written: Page = jax.tree.map(write, pool, new)
    return written
