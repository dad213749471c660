"""The batch shapes that are compiled, each with its place for the steps of a batch."""

import jax
import numpy as np

from learner.acting.act_step import example_timestep
from learner.serving.core import Batch
from seedrl.specs import EnvSpec
from seedrl.types import StepType, TimeStep


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
        self._example = example_timestep(spec)

    def padding_batch(self, rows: int) -> tuple[np.ndarray, np.ndarray, TimeStep]:
        """Slots, positions and time step of a batch that holds nothing."""
        timestep = jax.tree.map(
            lambda leaf: np.zeros((rows, *leaf.shape), leaf.dtype), self._example
        )
        timestep.step_type[:] = StepType.FIRST
        return np.full(rows, self.padding_slot, np.int32), np.zeros(rows, np.int32), timestep

    def stage(self, batch: Batch, own_slots: np.ndarray) -> tuple[np.ndarray, np.ndarray, TimeStep]:
        """Slots `[R] int32`, positions `[R] int32` and time step `[R, ...]`, padded to R rows.

        Every call makes new arrays: on CPUs the device may read them in place.

        Args:
          own_slots: `[B] int32`, what the programs call the slots of the batch.
        """
        rows = self._fit(self.ready_rows, len(batch.slots))
        slots, positions, timestep = self.padding_batch(rows)
        slots[: len(batch.slots)] = own_slots
        positions[: len(batch.slots)] = batch.positions
        targets = jax.tree.leaves(timestep)
        for item, where in zip(batch.pending, batch.rows, strict=True):
            for target, source in zip(targets, jax.tree.leaves(item.timestep), strict=True):
                target[where] = source
        return slots, positions, timestep

    def pad_page_slots(self, slots: np.ndarray) -> np.ndarray:
        """`[I] int32`, padded by repeating slot 0: the pages of padding are never inserted."""
        padded = np.zeros(self._fit(self.page_rows, len(slots)), np.int32)
        padded[: len(slots)] = slots
        return padded

    @staticmethod
    def _fit(sizes: tuple[int, ...], rows: int) -> int:
        return next(size for size in sizes if size >= rows)
