"""The device's side of the on-policy queue: sequences in places that the host knows."""

import functools

import chex
import jax
import jax.numpy as jnp

from seedrl.replay.experience import Batch, Memory
from seedrl.replay.placement import write_rows
from seedrl.types import Array, Page, Sequence


def queue_memory(capacity_sequences: int) -> Memory:
    """The memory of one device: its state is a `Page` with leaves `[C, K, ...]`, carry `[C, ...]`.

    Which place holds what is known to `QueueIndex` alone: `plan`, `[I] int32`, says where I pages
    go, C for one that is not stored; `draw`, `[B] int32`, from where a batch is taken. All weights
    are 1, and what an update writes back changes nothing: a sequence is never drawn again.
    """
    return Memory(
        init=functools.partial(_init, capacity_sequences),
        insert=_insert,
        sample=_sample,
        write_back=lambda state, places, priorities: state,
    )


def _init(capacity: int, page: Page) -> Page:
    pages: Page = jax.tree.map(lambda leaf: jnp.zeros((capacity, *leaf.shape), leaf.dtype), page)
    return pages


def _insert(state: Page, pages: Page, plan: Array) -> Page:
    chex.assert_type(plan, jnp.int32)
    chex.assert_tree_shape_prefix(pages, plan.shape)
    chex.assert_trees_all_equal_dtypes(state, pages)
    stored: Page = jax.tree.map(functools.partial(write_rows, index=plan), state, pages)
    return stored


def _sample(state: Page, draw: Array, key: Array, largest: object) -> Batch:
    del key, largest  # the host has drawn

    def time_major(pool: Array) -> Array:
        return jnp.swapaxes(pool[draw], 0, 1)

    sequence = Sequence(
        steps=jax.tree.map(time_major, state.steps),
        carry=jax.tree.map(lambda pool: pool[draw], state.carry),
    )
    return Batch(sequence, jnp.ones(draw.shape, jnp.float32), places=())
