"""The batch shapes that are compiled, each with its place for the steps of a batch."""

import bisect

import jax
import numpy as np

from learner.acting.act_step import example_timestep
from learner.serving.core import Batch
from seedrl.specs import EnvSpec
from seedrl.types import TimeStep


def ladder(largest: int, *, factor: int, rungs: int) -> tuple[int, ...]:
    """At most `rungs` sizes, each `factor` times the one before, ending with `largest`."""
    return tuple(sorted({-(-largest // factor**rung) for rung in range(rungs)}))


class BatchShapes:
    """Copies the steps of a batch into arrays of the next larger compiled shape.

    Attributes:
      padding_slot: S, one past the last slot: rows of it read garbage and write nothing.
      act_rows, page_rows: the numbers of rows that there are programs for, in ascending order.
      ready_rows: those of `act_rows` that batches may take: with only some of the programs compiled
        the others wait. Rebinding it is atomic: another thread may compile meanwhile.
    """

    def __init__(self, spec: EnvSpec, *, num_training: int, num_evaluation: int, rungs: int = 3):
        self.padding_slot = num_training + num_evaluation
        sizes = {size for size in (num_training, num_evaluation) if size}
        self.act_rows = tuple(sorted(sizes | set(ladder(max(sizes), factor=2, rungs=rungs))))
        self.ready_rows = self.act_rows
        # Pages of one group fill up together, so few sizes are enough: each costs two compilations.
        self.page_rows = ladder(max(num_training, 1), factor=4, rungs=rungs)
        leaves, self._tree = jax.tree.flatten(example_timestep(spec))
        self._leaves = [(leaf.shape, leaf.dtype) for leaf in leaves]

    def padding_batch(self, rows: int) -> tuple[np.ndarray, np.ndarray, TimeStep]:
        """Slots, positions and time step of a batch that holds nothing."""
        slots, positions, leaves = self._padding(rows)
        return slots, positions, jax.tree.unflatten(self._tree, leaves)

    def stage(self, batch: Batch, own_slots: np.ndarray) -> tuple[np.ndarray, np.ndarray, TimeStep]:
        """Slots `[R] int32`, positions `[R] int32` and time step `[R, ...]`, padded to R rows.

        Every call makes new arrays: on CPUs the device may read them in place.

        Args:
          own_slots: `[B] int32`, what the programs call the slots of the batch.
        """
        num_rows = len(batch.slots)
        slots, positions, targets = self._padding(self._fit(self.ready_rows, num_rows))
        slots[:num_rows] = own_slots
        positions[:num_rows] = batch.positions
        for item, where in zip(batch.pending, batch.rows, strict=True):
            for target, source in zip(targets, jax.tree.leaves(item.timestep), strict=True):
                target[where] = source
        return slots, positions, jax.tree.unflatten(self._tree, targets)

    def _padding(self, rows: int) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
        """Like `padding_batch`, with the leaves of the time step."""
        slots = np.empty(rows, np.int32)
        slots.fill(self.padding_slot)
        # Zeros are FIRST rows.
        leaves = [np.zeros((rows, *shape), dtype) for shape, dtype in self._leaves]
        return slots, np.zeros(rows, np.int32), leaves

    def pad_page_slots(self, slots: np.ndarray) -> np.ndarray:
        """`[I] int32`, padded by repeating slot 0: the pages of padding are never inserted."""
        padded = np.zeros(self._fit(self.page_rows, len(slots)), np.int32)
        padded[: len(slots)] = slots
        return padded

    @staticmethod
    def _fit(sizes: tuple[int, ...], rows: int) -> int:
        return sizes[bisect.bisect_left(sizes, rows)]
