"""An actor: the inference programs of one device, with the slots that it acts for.

Programs are compiled for a few numbers of rows: batches of other sizes are padded.
"""

import bisect
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from learner.acting.act_step import (
    ActingState,
    ActPrograms,
    ActRows,
    PackedTree,
    build_act_programs,
    example_timestep,
    zero_rows,
)
from learner.learning.device_mapping import shapes_of
from learner.runtime.channel import VersionedParams
from learner.serving.core import Batch
from learner.serving.leases import SlotRange
from seedrl.agents.agent import Agent
from seedrl.errors import ConfigError
from seedrl.replay.index import tree_bytes
from seedrl.rl.exploration import decayed
from seedrl.specs import ACTION_MASK, EnvSpec
from seedrl.types import Array, Page, Tree


class Staged(NamedTuple):
    """A batch, padded to as many rows as there is a program for."""

    packed: PackedTree
    rows: ActRows  # views of it


def ladder(largest: int, *, factor: int, rungs: int) -> tuple[int, ...]:
    """At most `rungs` sizes, each `factor` times the one before, ending with `largest`."""
    return tuple(sorted({-(-largest // factor**rung) for rung in range(rungs)}))


def over_slots(rungs: np.ndarray) -> np.ndarray:
    """What each training slot explores with, `[N]`, of a ladder from most to least, `[N]`.

    Slot s gets the rung with the rank of frac(s φ) among all slots, φ the golden section (Weyl
    1916).
    """
    # So slots that follow each other explore to all degrees: those of one env server, and those
    # that are filled while there are few.
    turns = np.arange(len(rungs)) * ((math.sqrt(5) - 1) / 2) % 1.0
    return rungs[np.argsort(np.argsort(turns))]


def page_rows(num_training: int, rungs: int) -> tuple[int, ...]:
    """The numbers of pages that there are programs for, in ascending order."""
    # Pages of one group fill up together, so few sizes are enough: each costs compilations.
    return ladder(max(num_training, 1), factor=4, rungs=rungs)


class BatchShapes:
    """Copies the steps of a batch into arrays of the next larger compiled shape. One thread's."""

    def __init__(self, spec: EnvSpec, *, num_training: int, num_evaluation: int, rungs: int = 3):
        # S, one past the last slot: rows of it read garbage and write nothing.
        self.padding_slot = num_training + num_evaluation
        sizes = {size for size in (num_training, num_evaluation) if size}
        # Numbers of rows that there are programs for, ascending; `page_rows` alike.
        self.act_rows = tuple(sorted(sizes | set(ladder(max(sizes), factor=2, rungs=rungs))))
        # Those that batches may take. The thread that compiles the others rebinds it once they are
        # there, which is atomic: acting sees the old tuple or the new one.
        self.ready_rows = self.act_rows
        self.page_rows = page_rows(num_training, rungs)
        self.has_mask = spec.has_mask
        self._timestep = example_timestep(spec)
        # Memory for batches, by number of rows, with the leaves of the time step in it. It is used
        # again: `Actor.act` waits until the device has read it, which on CPUs it does in place.
        self._memory: dict[int, tuple[Staged, list[np.ndarray]]] = {}

    def stage(self, batch: Batch, own_slots: np.ndarray) -> Staged:
        """Copies its steps into memory that the next batch of as many rows overwrites.

        `own_slots`: `[B] int32`, what the programs call the batch's slots.
        """
        num_rows = len(batch.slots)
        fitting = self._fit(self.ready_rows, num_rows)
        if fitting not in self._memory:
            staged = self.padding(fitting)
            self._memory[fitting] = staged, jax.tree.leaves(staged.rows.timestep)
        staged, targets = self._memory[fitting]
        rows = staged.rows
        rows.slot[:num_rows] = own_slots
        rows.slot[num_rows:] = self.padding_slot
        rows.position[:num_rows] = batch.positions
        for item, where in zip(batch.pending, batch.rows, strict=True):
            for target, source in zip(targets, jax.tree.leaves(item.timestep), strict=True):
                target[where] = source
        return staged

    def padding(self, num_rows: int) -> Staged:
        """An empty batch, in memory of its own; zeros are FIRST rows."""
        staged = Staged(*zero_rows(self._timestep, num_rows))
        staged.rows.slot[:] = self.padding_slot
        return staged

    def pad_page_slots(self, slots: np.ndarray) -> np.ndarray:
        """`[I] int32`, padded by repeating slot 0: the pages of padding are never inserted."""
        padded = np.zeros(self._fit(self.page_rows, len(slots)), np.int32)
        padded[: len(slots)] = slots
        return padded

    @staticmethod
    def _fit(sizes: tuple[int, ...], rows: int) -> int:
        return sizes[bisect.bisect_left(sizes, rows)]


class Actor:
    """Acts on batches of any size, by programs for a few. Its acting thread owns it.

    Its programs number its slots from 0, training slots first; batches number those of all actors.
    """

    def __init__(
        self,
        programs: ActPrograms,
        shapes: BatchShapes,
        state: ActingState,
        exploration_at: Callable[[int], np.ndarray],
        slots: np.ndarray | None = None,
        device: int = 0,
    ):
        """Owns `state` from now on: the programs consume it.

        Args:
          exploration_at: environment steps of the run -> `[S] float32`, of its slots.
          slots: `[S] int32`, the slots that it acts for, in the order of its own numbers; by
            default slot 0 and those that follow.
          device: the number of its inference device.
        """
        self._programs = programs
        self._shapes = shapes
        self._state = state
        self._state_shapes: Any = ()  # for the thread that compiles; see `warm_up_largest`
        slots = np.arange(shapes.padding_slot, dtype=np.int32) if slots is None else slots
        # By the numbers in batches. A slot of another device would be padding here, which writes
        # nothing.
        self._own = np.full(int(slots.max(initial=-1)) + 1, shapes.padding_slot, np.int32)
        self._own[slots] = np.arange(len(slots))
        self.device = device
        self._exploration_at = exploration_at
        self.num_slots = shapes.padding_slot
        self.end_slot = len(self._own)  # one past the highest of its slots, as batches number them
        self.page_steps = programs.page_steps
        self.page_rows = shapes.page_rows  # numbers of pages that `take_pages` may return

    @property
    def state_bytes(self) -> int:
        """Bytes of the state on the device; before the acting thread starts."""
        return tree_bytes(self._state)

    def warm_up_largest(self, versioned: VersionedParams) -> None:
        """Compiles the program for the largest batch, which all batches take from then on.

        It runs once, on padding, which consumes the state: only before the acting thread starts.
        """
        largest = self._shapes.act_rows[-1]
        self._shapes.ready_rows = (largest,)
        self._state, action = self._programs.act(
            self._state, versioned.params, self._shapes.padding(largest).packed
        )
        jax.block_until_ready(action)
        # Shapes only: while another thread compiles for them, acting consumes the arrays.
        self._state_shapes = shapes_of(self._state)

    def compile_others(self, versioned: VersionedParams) -> None:
        """Compiles all other programs, after `warm_up_largest`, on any thread; runs none."""
        act: Any = self._programs.act
        take_pages: Any = self._programs.take_pages
        for rows in self._shapes.act_rows[:-1]:
            padding = self._shapes.padding(rows).packed
            act.lower(self._state_shapes, versioned.params, padding).compile()
        for rows in self.page_rows:
            take_pages.lower(self._state_shapes, np.zeros(rows, np.int32)).compile()
        self._shapes.ready_rows = self._shapes.act_rows

    def stage(self, batch: Batch) -> Staged:
        """Copies the steps of a batch of its slots together, for `act`, until the next batch."""
        return self._shapes.stage(batch, self._own[batch.slots])

    def act(
        self, batch: Batch, staged: Staged, versioned: VersionedParams, env_steps: int = 0
    ) -> np.ndarray:
        """Acts on a batch that was staged and waits for the actions.

        `env_steps`: training environment steps of the run so far.

        Returns the actions, `[B] int32` or `[B, *shape] float32`.
        """
        rows = staged.rows
        rows.version[:] = versioned.version
        rows.number[:] = batch.number % 2**32
        rows.exploration[:] = self._exploration_at(env_steps).take(rows.slot, mode="clip")
        self._state, action = self._programs.act(self._state, versioned.params, staged.packed)
        # Waits for the device: env servers get their actions from this very thread.
        actions = np.asarray(action)[: len(batch.slots)]
        if self._shapes.has_mask:
            _require_legal(actions, rows.timestep.observation, batch.slots)
        return actions

    def take_pages(self, slots: np.ndarray) -> Page:
        """Copies of the pages of `slots`, on the device: `[I, ...]`; the last may be padding."""
        own = self._shapes.pad_page_slots(self._own[slots])
        return self._programs.take_pages(self._state, own)


def _require_legal(actions: np.ndarray, observation: Tree, slots: np.ndarray) -> None:
    # The bundled agents take legal actions by construction; a user's own may forget the mask.
    mask = observation[ACTION_MASK][: len(actions)]
    is_legal = mask[np.arange(len(actions)), actions] | ~mask.any(axis=-1)
    if not is_legal.all():
        row = int(np.argmin(is_legal))
        raise ConfigError(
            f"agent.act: expected an action that observation.{ACTION_MASK} allows, got "
            f"{actions[row]} for slot {slots[row]}; see seedrl.agents.masks"
        )


def build_actor(
    agent: Agent,
    spec: EnvSpec,
    page: Page,
    *,
    slot_ranges: Sequence[SlotRange],
    exploration: np.ndarray,
    decay_steps: int,
    key: Array,
    device: jax.Device,
    rungs: int,
) -> Actor:
    """The actor of an inference device.

    Args:
      page: example from `example_page`.
      slot_ranges: of that device, training first.
      exploration: `[S] float32` of all slots.
      decay_steps: environment steps over which that of training slots falls from 1; 0 for none.
      rungs: sizes of batches and of pages that it has programs for, at most.
    """
    # In the order of the programs' own numbers.
    slots = np.concatenate([np.array(own.slots, np.int32) for own in slot_ranges])
    own_exploration = exploration[slots]
    num_training = sum(own.size for own in slot_ranges if own.role == "training")
    programs = build_act_programs(
        agent,
        page,
        num_training=num_training,
        num_slots=len(slots),
    )
    shapes = BatchShapes(
        spec, num_training=num_training, num_evaluation=len(slots) - num_training, rungs=rungs
    )
    state = jax.device_put(programs.init(key), device)
    starts = np.where(np.arange(len(slots)) < num_training, 1.0, own_exploration)
    exploration_at = functools.partial(decayed, starts, own_exploration, decay_steps)
    return Actor(programs, shapes, state, exploration_at, slots, slot_ranges[0].device)
