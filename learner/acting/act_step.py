"""Acting as jitted programs: one inference step over slots, and taking out the pages it filled."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from seedrl.agents.agent import Agent
from seedrl.agents.check import check_acting
from seedrl.specs import EnvSpec
from seedrl.types import Array, Page, StoredStep, TimeStep, Tree

# Copying a longer row once more would cost more than another array.
_LONGEST_PACKED = 512


class PackedTree(NamedTuple):
    """A tree with leaves `[*rows, ...]`, the small ones of 32 bits side by side in one array.

    A small network takes as long as a dozen gathers and scatters, of which each array needs one.
    And each array is a transfer of its own to a GPU.
    """

    words: Tree  # [*rows, W] uint32; () without any
    others: Sequence[Array]


class ActingState(NamedTuple):
    """What lives on the device per slot. `act` consumes it; the acting thread owns it."""

    carry: PackedTree  # of [S, ...]: the agent's carry before the slot's next step
    # The page that each training slot writes, and the carry from before its first step.
    open_steps: PackedTree  # of [N, K, ...]
    open_carry: PackedTree  # of [N, ...]
    key: Array  # [2] uint32, the session's; a batch's is made of it and the batch's number


class ActRows(NamedTuple):
    """What `act` gets of each of B rows. Rows with slot S are padding: they write nothing."""

    slot: Array  # [B] int32
    position: Array  # [B] int32, in the slot's page
    exploration: Array  # [B] float32
    version: Array  # [B] int32, of the parameters
    number: Array  # [B] uint32, the batch's: no two batches have the same
    timestep: TimeStep  # [B], its step types as int32


class ActPrograms(NamedTuple):
    """The jitted programs of an actor; its slots are numbered from 0, training slots first."""

    init: Callable[[Array], ActingState]  # of a key
    # (state, params, packed ActRows) -> (state, action [B]). Consumes `state`.
    act: Callable[[ActingState, Tree, PackedTree], tuple[ActingState, Array]]
    take_pages: Callable[[ActingState, Array], Page]  # of slots [I]: copies, leaves [I, ...]
    page_steps: int  # K


def example_timestep(spec: EnvSpec) -> TimeStep:
    """One unbatched time step of zeros, in the dtypes that the device uses."""
    # By default jax has no types of 64 bits, which a spec may have.
    leaves = [np.zeros(leaf.shape, leaf.dtype) for _, leaf in spec.leaves()]
    observation = spec.unflatten([jax.dtypes.canonicalize_dtype(leaf.dtype) for leaf in leaves])
    observation = jax.tree.map(
        lambda dtype, leaf: np.zeros(leaf.shape, dtype), observation, spec.unflatten(leaves)
    )
    return TimeStep(np.uint8(0), np.float32(0), np.float32(1), observation)


def example_rows(timestep: TimeStep) -> ActRows:
    """A row's shapes and dtypes; `timestep` shows those of a time step."""
    step_type = np.int32(0)  # of 32 bits, as what else is packed
    zero = np.int32(0)
    return ActRows(
        zero, zero, np.float32(0), zero, np.uint32(0), timestep._replace(step_type=step_type)
    )


def zero_rows(timestep: TimeStep, num_rows: int) -> tuple[PackedTree, ActRows]:
    """Packed rows of zeros in host memory, and views of it by which they are filled.

    `timestep` shows the shapes and dtypes of a time step.
    """
    leaves, tree = jax.tree.flatten(example_rows(timestep))
    # The words of a row are the fields of a structured array.
    fields = {place: leaf for place, leaf in enumerate(leaves) if _is_packed(leaf, 0)}
    words = np.zeros(num_rows, [(str(n), leaf.dtype, leaf.shape) for n, leaf in fields.items()])
    views = [
        words[str(place)] if place in fields else np.zeros((num_rows, *leaf.shape), leaf.dtype)
        for place, leaf in enumerate(leaves)
    ]
    others = [view for place, view in enumerate(views) if place not in fields]
    packed_rows = PackedTree(words.view(np.uint32).reshape(num_rows, -1), others)
    return packed_rows, jax.tree.unflatten(tree, views)


def example_page(agent: Agent, spec: EnvSpec, page_steps: int) -> Page:
    """A page's shapes and dtypes: `steps [K, ...]`, `carry [...]`, as `jax.ShapeDtypeStruct`."""
    steps, carry = check_acting(agent, spec)
    return Page(
        jax.tree.map(lambda x: jax.ShapeDtypeStruct((page_steps, *x.shape[2:]), x.dtype), steps),
        jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), carry),
    )


def build_act_programs(
    agent: Agent, page: Page, *, num_training: int, num_slots: int
) -> ActPrograms:
    """Builds the programs.

    Args:
      page: example from `example_page`.
      num_training: slots 0..N-1 write pages; the others only measure.
    """
    row = example_rows(
        jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), page.steps.timestep)
    )
    carries_of_slots = jax.eval_shape(lambda: agent.initial_carry(num_slots))

    def init(key: Array) -> ActingState:
        pages = jax.tree.map(lambda x: jnp.zeros((num_training, *x.shape), x.dtype), page)
        carry = packed(agent.initial_carry(num_slots), 1)
        return ActingState(carry, packed(pages.steps, 2), packed(pages.carry, 1), key)

    def act(state: ActingState, params: Tree, batch: PackedTree) -> tuple[ActingState, Array]:
        slots, positions, exploration, versions, numbers, timestep = unpacked(batch, row, 0)
        timestep = timestep._replace(step_type=timestep.step_type.astype(jnp.uint8))
        # Different keys of Threefry are independent, however close (Salmon et al. 2011); fold_in
        # would take as long as a small network.
        key = jnp.stack([state.key[0], state.key[1] ^ numbers[0]])
        # Gathers clamp and scatters drop out-of-range slots: padding rows (slot S) read the last
        # slot and write nothing. So do evaluation slots to the pages, where there are none of them.
        # `act` resets the carry of FIRST rows before it uses it.
        carry = unpacked(_rows(state.carry, slots), carries_of_slots, 1)
        output = agent.act(params, carry, timestep, exploration, key)
        step = StoredStep(timestep, output.action, versions, output.extras)
        # A page keeps the carry from before its first row.
        first_rows = jnp.where(positions == 0, slots, num_slots)
        state = ActingState(
            _write(state.carry, output.carry, (slots,)),
            _write(state.open_steps, step, (slots, positions)),
            _write(state.open_carry, agent.stored_carry(carry), (first_rows,)),
            state.key,
        )
        return state, output.action

    def take_pages(state: ActingState, slots: Array) -> Page:
        # Of a page only K is an axis of rows.
        steps = unpacked(_rows(state.open_steps, slots), page.steps, 1)
        return Page(steps, unpacked(_rows(state.open_carry, slots), page.carry, 0))

    return ActPrograms(
        init=jax.jit(init),
        # Donated, so that tables are changed in place: the acting thread has the only reference.
        act=jax.jit(act, donate_argnums=0),
        take_pages=jax.jit(take_pages),
        page_steps=page.steps.version.shape[0],
    )


def packed(tree: Tree, num_axes: int) -> PackedTree:
    """Packs the leaves `[*rows, ...]` of a tree; `num_axes` of each are axes of rows."""
    leaves = jax.tree.leaves(tree)
    words = [
        # Not -1 for the last axis: while evaluating there are 0 rows of pages.
        jax.lax.bitcast_convert_type(leaf, jnp.uint32).reshape(
            *leaf.shape[:num_axes], math.prod(leaf.shape[num_axes:])
        )
        for leaf in leaves
        if _is_packed(leaf, num_axes)
    ]
    others = [leaf for leaf in leaves if not _is_packed(leaf, num_axes)]
    return PackedTree(jnp.concatenate(words, axis=-1) if words else (), others)


def unpacked(tree: PackedTree, example: Tree, num_axes: int) -> Tree:
    """The tree that was packed, of which `example` shows the leaves: `[*rows, ...]`, of any rows.

    `num_axes`: axes of rows that the leaves of `example` have.
    """
    examples, structure = jax.tree.flatten(example)
    others, leaves, start = iter(tree.others), [], 0
    for leaf in examples:
        if not _is_packed(leaf, num_axes):
            leaves.append(next(others))
            continue
        shape = leaf.shape[num_axes:]
        end = start + math.prod(shape)
        words = tree.words[..., start:end]
        own = jax.lax.bitcast_convert_type(words, leaf.dtype)
        leaves.append(own.reshape(*words.shape[:-1], *shape))
        start = end
    return jax.tree.unflatten(structure, leaves)


def _is_packed(leaf: Array | jax.ShapeDtypeStruct, num_axes: int) -> bool:
    return leaf.dtype.itemsize == 4 and math.prod(leaf.shape[num_axes:]) <= _LONGEST_PACKED


def _rows(tables: Tree, slots: Array) -> Tree:
    return jax.tree.map(lambda table: table[slots], tables)


def _write(tables: PackedTree, rows: Tree, where: tuple[Array, ...]) -> PackedTree:
    # `rows` [B, ...], each to the place in `tables` that `where` names.
    return jax.tree.map(
        lambda table, row: table.at[where].set(row, mode="drop"), tables, packed(rows, 1)
    )
