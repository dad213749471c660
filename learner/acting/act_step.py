"""Acting as jitted programs: one inference step over slots, and taking out the pages it filled."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from seedrl.agents.agent import Agent
from seedrl.specs import EnvSpec
from seedrl.types import Array, Page, StoredStep, TimeStep, Tree

# More than one: with one row `[T, B]` and `[B, T]` look alike, and so does a row without its axis.
_EXAMPLE_ROWS = 3


class ActingState(NamedTuple):
    """What lives on the device per slot. `act` consumes it; the acting thread owns it."""

    carry: Tree  # of [S, ...]: the agent's carry before the slot's next step
    pages: Page  # steps [N, K, ...], carry [N, ...]: the open page of each training slot
    key: Array  # [2] uint32, the session's; a batch's is made of it and the batch's number


class ActPrograms(NamedTuple):
    """The jitted programs of an actor; its slots are numbered from 0, training slots first."""

    init: Callable[[Array], ActingState]  # of a key
    # (state, params, version, number [] uint32, slots [B], positions [B], timestep [B],
    # exploration) -> (state, action [B]). Consumes `state`. No two batches have the same `number`.
    # Rows with slot S are padding: they read garbage and write nothing. `exploration` is
    # `[B] float32`, or `()` for the slots' own.
    act: Callable[..., tuple[ActingState, Array]]
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


def example_page(agent: Agent, spec: EnvSpec, page_steps: int) -> Page:
    """A page's shapes and dtypes: `steps [K, ...]`, `carry [...]`, as `jax.ShapeDtypeStruct`."""
    # The agent acts for the first time here: see `build_agent` for what that may raise.

    def one_step(key: Array) -> tuple[Tree, Tree]:
        timestep = jax.tree.map(
            lambda leaf: jnp.stack([leaf] * _EXAMPLE_ROWS), example_timestep(spec)
        )
        carry, exploration = agent.initial_carry(_EXAMPLE_ROWS), jnp.zeros(_EXAMPLE_ROWS)
        output = agent.act(agent.actor_params(agent.init(key)), carry, timestep, exploration, key)
        version = jnp.zeros(_EXAMPLE_ROWS, jnp.int32)
        step = StoredStep(timestep, output.action, version, output.extras)
        return step, agent.stored_carry(carry)

    step, carry = jax.eval_shape(one_step, jax.random.PRNGKey(0))
    return Page(
        jax.tree.map(lambda x: jax.ShapeDtypeStruct((page_steps, *x.shape[1:]), x.dtype), step),
        jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), carry),
    )


def build_act_programs(
    agent: Agent, page: Page, *, num_training: int, num_slots: int, exploration: np.ndarray
) -> ActPrograms:
    """Builds the programs.

    Args:
      page: example from `example_page`.
      num_training: slots 0..N-1 write pages; the others only measure.
      exploration: `[S] float32`, per slot.
    """
    exploration_table = jnp.asarray(exploration, jnp.float32)

    def init(key: Array) -> ActingState:
        pages = jax.tree.map(lambda x: jnp.zeros((num_training, *x.shape), x.dtype), page)
        return ActingState(agent.initial_carry(num_slots), pages, key)

    def act(
        state: ActingState,
        params: Tree,
        version: Array,
        number: Array,
        slots: Array,
        positions: Array,
        timestep: TimeStep,
        exploration: Array | tuple[()] = (),
    ) -> tuple[ActingState, Array]:
        # Different keys of Threefry are independent, however close (Salmon et al. 2011); fold_in
        # would take as long as a small network.
        key = state.key.at[1].set(state.key[1] ^ number)
        # Gathers clamp and scatters drop out-of-range slots: padding rows (slot S) read the last
        # slot and write nothing. So do evaluation slots to the pages, where there are none of them.
        # `act` resets the carry of FIRST rows before it uses it.
        carry = jax.tree.map(lambda table: table[slots], state.carry)
        explored = exploration_table[slots] if isinstance(exploration, tuple) else exploration
        output = agent.act(params, carry, timestep, explored, key)
        step = StoredStep(
            timestep, output.action, jnp.full(slots.shape, version, jnp.int32), output.extras
        )
        # A page keeps the carry from before its first row.
        first_rows = jnp.where(positions == 0, slots, num_slots)
        pages = Page(
            _write(state.pages.steps, step, (slots, positions)),
            _write(state.pages.carry, agent.stored_carry(carry), (first_rows,)),
        )
        carries = _write(state.carry, output.carry, (slots,))
        return ActingState(carries, pages, state.key), output.action

    return ActPrograms(
        init=jax.jit(init),
        # Donated, so that tables are changed in place: the acting thread has the only reference.
        act=jax.jit(act, donate_argnums=0),
        take_pages=jax.jit(_take_pages),
        page_steps=page.steps.version.shape[0],
    )


def _write(tables: Tree, rows: Tree, where: tuple[Array, ...]) -> Tree:
    return jax.tree.map(lambda table, row: table.at[where].set(row, mode="drop"), tables, rows)


def _take_pages(state: ActingState, slots: Array) -> Page:
    return jax.tree.map(lambda table: table[slots], state.pages)
