"""The device's side of experience: the paged prioritized replay, and the on-policy queue.

Both are bundles of pure functions.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from seedrl.agents.window import WindowSpec
from seedrl.replay.experience import Batch, Memory
from seedrl.replay.index import check_geometry
from seedrl.replay.sampling import stratified_draw
from seedrl.rl.priorities import MIN_MASS, importance_weights, shard_probability, stored_mass
from seedrl.types import Array, Page, Sequence, StoredStep


class ReplayState(NamedTuple):
    """One shard's experience. A sequence is named by its place: that of the page it starts in.

    Where M sequences start in a page, the m-th of page p has the place p M + m.

    Attributes:
      pages: leaves `[P, K, ...]`, carry leaves `[P, ...]`.
      next: `[P] int32`, the page that follows in the same stream; P for none (yet).
      mass: `[P M] float32`, priority^α of the sequence of a place; 0 where there is no complete
        one.
    """

    pages: Page
    next: Array
    mass: Array


class Sample(NamedTuple):
    """A batch drawn from one shard.

    Attributes:
      sequence: leaves `[T, B, ...]`, carry leaves `[B, ...]`; T is the window's length.
      index: `[B] int32`, the place of each sequence: what `update_priorities` wants back.
      probability: `[B] float32`, the probability of each draw within this shard.
    """

    sequence: Sequence
    index: Array
    probability: Array


class Replay(NamedTuple):
    """A paged prioritized replay of one device: pure, jittable functions with static shapes.

    Attributes:
      capacity_pages: P.
      init: `page -> ReplayState`, empty, from the shapes of one example page (leaves `[K, ...]`,
        carry leaves `[...]`; arrays or shape structs).
      insert: `(state, pages, plan) -> ReplayState`; leaves `[I, K, ...]`, carry leaves `[I, ...]`,
        plan `[3, I] int32`, see `PageIndex.plan`. Consumes `state`: donate it.
      sample: `(state, key, batch_size) -> Sample`; consumes the key. Every shard must hold a
        sequence before its first batch: an empty one answers with zeros and probability 0.
      update_priorities: `(state, index [B] int32, priorities [B] float32) -> ReplayState`. Keeps
        the mass of a priority that is not finite or is negative, and that of a page that is not
        sampleable. Where an index occurs several times, one of its priorities is kept.
    """

    capacity_pages: int
    init: Callable[[Page], ReplayState]
    insert: Callable[[ReplayState, Page, Array], ReplayState]
    sample: Callable[[ReplayState, Array, int], Sample]
    update_priorities: Callable[[ReplayState, Array, Array], ReplayState]


def paged_replay(
    *,
    window: WindowSpec,
    page_steps: int,
    capacity_pages: int,
    priority_exponent: float,
    initial_priorities: Callable[[StoredStep], Array],
) -> Replay:
    """Builds the replay of one shard.

    Args:
      window: which sequences there are; the stride must be a whole number of pages, or a page of
        strides. Then M > 1 sequences start in each, and pages have no carry.
      page_steps: K.
      capacity_pages: P, at least the pages of one sequence.
      priority_exponent: α ≥ 0 in P(i) = p_i^α / Σ p^α.
      initial_priorities: `steps [T, I] -> [I] float32`, with `steps.timestep.observation` `()`; see
        `Agent.initial_priorities`.

    Source: Schaul et al. 2016 (proportional variant); Kapturowski et al. 2019, section 2.3
    (sequences).
    """
    check_geometry(window, page_steps, capacity_pages)
    assert capacity_pages * page_steps < 2**31, "row numbers are int32"
    starts = window.starts_in_page(page_steps)
    gather = functools.partial(
        _gather_rows, window=window, page_steps=page_steps, starts_in_page=starts
    )
    return Replay(
        capacity_pages=capacity_pages,
        init=functools.partial(
            _init, capacity_pages=capacity_pages, page_steps=page_steps, starts_in_page=starts
        ),
        insert=functools.partial(
            _insert,
            starts_in_page=starts,
            gather=gather,
            initial_priorities=initial_priorities,
            priority_exponent=priority_exponent,
        ),
        sample=functools.partial(_sample, starts_in_page=starts, gather=gather),
        update_priorities=functools.partial(
            _update_priorities, priority_exponent=priority_exponent
        ),
    )


def prioritized_memory(
    replay: Replay, *, batch_per_device: int, num_devices: int, importance_exponent: float
) -> Memory:
    """A replay whose draws are weighted for their bias. The device draws: `draw` is `()`.

    Args:
      replay: of each device.
      batch_per_device: B/n.
      num_devices: n.
      importance_exponent: beta, see `importance_weights`.
    """

    def sample(
        state: ReplayState, draw: tuple[()], key: Array, largest: Callable[[Array], Array]
    ) -> Batch:
        del draw
        drawn = replay.sample(state, key, batch_per_device)
        probability = shard_probability(drawn.probability, num_devices)
        weights = importance_weights(probability, importance_exponent, largest)
        return Batch(drawn.sequence, weights, drawn.index)

    return Memory(replay.init, replay.insert, sample, replay.update_priorities)


def _init(page: Page, *, capacity_pages: int, page_steps: int, starts_in_page: int) -> ReplayState:
    chex.assert_tree_shape_prefix(page.steps, (page_steps,))
    assert starts_in_page == 1 or not jax.tree.leaves(page.carry), "no carry inside a page"
    # Never jnp.empty: it is uninitialised since jax 0.11.
    pages = jax.tree.map(lambda leaf: jnp.zeros((capacity_pages, *leaf.shape), leaf.dtype), page)
    return ReplayState(
        pages=pages,
        next=jnp.full((capacity_pages,), capacity_pages, jnp.int32),
        mass=jnp.zeros((capacity_pages * starts_in_page,), jnp.float32),
    )


def _insert(
    state: ReplayState,
    pages: Page,
    plan: Array,
    *,
    starts_in_page: int,
    gather: Callable[[StoredStep, Array, Array], StoredStep],
    initial_priorities: Callable[[StoredStep], Array],
    priority_exponent: float,
) -> ReplayState:
    """Writes pages, then links, then masses: a call may bring several pages of one stream.

    1. The pages overwrite whatever lies where they go, whose link and mass are cleared.
    2. Links to the new pages are set. After the clearing, because a predecessor may be new itself.
    3. Completed sequences get their initial mass. After all links, because their pages may be of
       this call. `PageIndex.plan` never names a sequence whose start is overwritten in the same
       call.

    A refused initial priority (see `stored_mass`) is replaced by the mean mass of the sequences
    that something can be learned of, or 1 if there is none: the sequence stays countable, and is
    soon drawn and corrected.
    """
    num_pages = plan.shape[1]
    chex.assert_shape(plan, (3, num_pages))
    chex.assert_type(plan, jnp.int32)
    index, previous, completed = plan
    chex.assert_tree_shape_prefix(pages, (num_pages,))
    chex.assert_trees_all_equal_dtypes(state.pages, pages)
    stored = jax.tree.map(functools.partial(write_rows, index=index), state.pages, pages)
    capacity = state.next.shape[0]
    mass = state.mass.at[_places(index, starts_in_page)].set(0.0, mode="drop")
    link = state.next.at[index].set(capacity, mode="drop")
    link = link.at[previous].set(index, mode="drop")

    places = _places(completed, starts_in_page)
    steps = gather(_without_observation(stored.steps), link, places)
    priorities = initial_priorities(steps)
    chex.assert_shape(priorities, places.shape)
    new_mass = stored_mass(priorities.astype(jnp.float32), priority_exponent)
    is_refused = (places < state.mass.shape[0]) & (new_mass <= 0)
    # Hardly ever: else insertion would read all masses each time, for nothing.
    mean = jax.lax.cond(jnp.any(is_refused), _mean_mass, lambda mass: jnp.float32(1.0), mass)
    new_mass = jnp.where(new_mass > 0, new_mass, mean)
    return ReplayState(stored, link, mass.at[places].set(new_mass, mode="drop"))


def _places(pages: Array, starts_in_page: int) -> Array:
    """Those of all sequences that start in `pages [I] int32`: `[I M] int32`."""
    starts = jnp.arange(starts_in_page, dtype=pages.dtype)
    return (pages[:, None] * starts_in_page + starts[None]).reshape(-1)


def _mean_mass(mass: Array) -> Array:
    # Sequences of which nothing can be learned do not count: with them in it, the mean of equal
    # masses would be less than each, and newer sequences would be drawn less and less.
    num_useful = jnp.sum(mass > MIN_MASS)
    return jnp.where(num_useful > 0, jnp.sum(mass) / jnp.maximum(num_useful, 1), 1.0)


def _sample(
    state: ReplayState,
    key: Array,
    batch_size: int,
    *,
    starts_in_page: int,
    gather: Callable[[StoredStep, Array, Array], StoredStep],
) -> Sample:
    index, probability = stratified_draw(state.mass, key, batch_size)
    sequence = Sequence(
        steps=gather(state.pages.steps, state.next, index),
        carry=jax.tree.map(
            lambda pool: pool.at[index // starts_in_page].get(mode="clip"), state.pages.carry
        ),
    )
    return Sample(sequence, index, probability)


def _update_priorities(
    state: ReplayState, index: Array, priorities: Array, *, priority_exponent: float
) -> ReplayState:
    chex.assert_rank([index, priorities], 1)
    chex.assert_equal_shape([index, priorities])
    chex.assert_type([index, priorities], [jnp.int32, jnp.float32])
    old = state.mass.at[index].get(mode="clip")
    new = stored_mass(priorities, priority_exponent)
    new = jnp.where((new > 0) & (old > 0), new, old)
    return state._replace(mass=state.mass.at[index].set(new, mode="drop"))


def _gather_rows(
    steps: StoredStep,
    link: Array,
    places: Array,
    *,
    window: WindowSpec,
    page_steps: int,
    starts_in_page: int,
) -> StoredStep:
    """The rows of sequences, time-major: `[P, K, ...]`, `[P]` and `[B]` give `[T, B, ...]`.

    Counted from the beginning of the page that it starts in, row t lies in page t // K of the
    chain, at offset t % K. One gather per leaf from the pool straight into the result, so no page
    is copied whole. A place beyond the last is clipped: its rows mean nothing.

    Measured for 125 rows of 64 sequences of 84 x 84 bytes from 1,500 pages of 40, on two CPU cores
    shared with other work, medians of 60 calls, the variants interleaved: 4.3 ms; through flattened
    rows 4.2 ms; batch-major 4.2 ms; whole pages 5.6 ms; a loop of slices 13.6 ms. The 56 MB decide:
    numpy copies them in 8.4 ms, with one core. `Replay.sample` takes 6.2 ms in all, and
    `Replay.insert` of 16 such pages, donated, 1.2 ms, of which the observations take 0.8 ms.
    """
    chain = [places // starts_in_page]
    for _ in range(window.pages_per_sequence(page_steps) - 1):
        chain.append(link.at[chain[-1]].get(mode="clip"))
    start = places % starts_in_page * window.stride
    rows = jnp.arange(window.length)[:, None] + start[None]
    page = jnp.take_along_axis(jnp.stack(chain), rows // page_steps, axis=0, mode="clip")
    offset = rows % page_steps

    def take(pool: Array) -> Array:
        return pool.at[page, offset].get(mode="clip")

    return jax.tree.map(take, steps)


def _without_observation(steps: StoredStep) -> StoredStep:
    return steps._replace(timestep=steps.timestep._replace(observation=()))


def write_rows(pool: Array, new: Array, *, index: Array) -> Array:
    """`pool [P, ...]` with `new [I, ...]` at `index [I] int32`; beyond the pool nothing is written.

    In a shard of one device, as pmap hands it over, XLA:CPU would copy the whole pool first if
    another axis is 1 too (pages of one step, say) and its items have four bytes: with the axis of
    devices dropped its layout is ambiguous. So the axis is added again for the time of writing.
    """
    return pool[None].at[0, index].set(new, mode="drop")[0]


def queue_memory(capacity_sequences: int) -> Memory:
    """The memory of one device: its state is a `Page` with leaves `[C, K, ...]`, carry `[C, ...]`.

    Which place holds what is known to `QueueIndex` alone: `plan`, `[I] int32`, says where I pages
    go, C for one that is not stored; `draw`, `[B] int32`, from where a batch is taken. All weights
    are 1, and what an update writes back changes nothing: a sequence is never drawn again.
    """
    return Memory(
        init=functools.partial(_init_queue, capacity_sequences),
        insert=_insert_sequences,
        sample=_take_sequences,
        write_back=lambda state, places, priorities: state,
    )


def _init_queue(capacity: int, page: Page) -> Page:
    pages: Page = jax.tree.map(lambda leaf: jnp.zeros((capacity, *leaf.shape), leaf.dtype), page)
    return pages


def _insert_sequences(state: Page, pages: Page, plan: Array) -> Page:
    chex.assert_type(plan, jnp.int32)
    chex.assert_tree_shape_prefix(pages, plan.shape)
    chex.assert_trees_all_equal_dtypes(state, pages)
    stored: Page = jax.tree.map(functools.partial(write_rows, index=plan), state, pages)
    return stored


def _take_sequences(state: Page, draw: Array, key: Array, largest: object) -> Batch:
    del key, largest  # the host has drawn

    def time_major(pool: Array) -> Array:
        return jnp.swapaxes(pool[draw], 0, 1)

    sequence = Sequence(
        steps=jax.tree.map(time_major, state.steps),
        carry=jax.tree.map(lambda pool: pool[draw], state.carry),
    )
    return Batch(sequence, jnp.ones(draw.shape, jnp.float32), places=())
