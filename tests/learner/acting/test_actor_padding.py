"""Batches are padded to shapes that are compiled, and keep their rows."""

import numpy as np
import pytest

from learner.acting.actor import BatchShapes, ladder
from learner.serving.batching import Pending
from learner.serving.core import Batch
from learner.serving.leases import Group, Lease
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec
from seedrl.types import StepType, TimeStep

SPEC = EnvSpec(
    {"image": ArraySpec((2, 2), "uint8"), "more": (ArraySpec((3,), "float64"),)}, DiscreteSpec(2)
)


def _shapes(num_training: int = 8, num_evaluation: int = 3) -> BatchShapes:
    return BatchShapes(SPEC, num_training=num_training, num_evaluation=num_evaluation)


def _pending(slots: list[int]) -> Pending:
    lease, rows = Lease(1, 1, "peer", 0), len(slots)
    group = Group(
        lease, 0, np.array(slots, np.int32), np.array(slots, np.int64), "training", 0, b""
    )
    marks = np.array(slots)
    observation = {
        "image": np.full((rows, 2, 2), marks[:, None, None], np.uint8),
        "more": (np.full((rows, 3), marks[:, None] + 0.5, np.float64),),
    }
    timestep = TimeStep(
        np.full(rows, StepType.MID, np.uint8),
        marks.astype(np.float32),
        np.ones(rows, np.float32),
        observation,
    )
    return Pending(group, 0, timestep, 0.0)


def _batch(*groups: list[int]) -> Batch:
    pending = [_pending(slots) for slots in groups]
    slots = np.concatenate([item.group.slots for item in pending])
    ends = np.cumsum([len(slots) for slots in groups])
    rows = [slice(end - len(slots), end) for slots, end in zip(groups, ends, strict=True)]
    return Batch(pending, slots, slots.astype(np.int64), slots % 4, "training", 0.0, 0, rows)


def _stage(shapes: BatchShapes, batch: Batch) -> tuple[np.ndarray, np.ndarray, TimeStep]:
    return shapes.stage(batch, batch.slots)


@pytest.mark.parametrize(
    ("largest", "factor", "rungs", "expected"),
    [
        (32, 2, 3, (8, 16, 32)),
        (32, 4, 3, (2, 8, 32)),
        (5, 2, 3, (2, 3, 5)),
        (1, 2, 3, (1,)),
        (2, 4, 9, (1, 2)),
    ],
)
def test_the_ladder_ends_with_the_largest_batch(
    largest: int, factor: int, rungs: int, expected: tuple[int, ...]
) -> None:
    assert ladder(largest, factor=factor, rungs=rungs) == expected


@pytest.mark.parametrize(
    ("training", "evaluation"), [(8, 3), (3, 8), (32, 20), (1, 0), (0, 4), (7, 7)]
)
def test_every_batch_that_can_come_fits(training: int, evaluation: int) -> None:
    shapes = _shapes(training, evaluation)
    assert shapes.padding_slot == training + evaluation
    assert shapes.act_rows[-1] == max(training, evaluation)
    assert {training, evaluation} - {0} <= set(shapes.act_rows)  # full batches are not padded
    assert shapes.page_rows[-1] == max(training, 1)


def test_groups_are_laid_one_after_another_and_the_rest_is_padding() -> None:
    slots, positions, timestep = _stage(_shapes(), _batch([5, 6], [2]))
    assert slots.tolist() == [5, 6, 2] + [11] * (len(slots) - 3)
    assert positions.tolist() == [1, 2, 2] + [0] * (len(slots) - 3)
    rest = [0] * (len(slots) - 3)
    assert timestep.reward.tolist() == [5, 6, 2, *rest]
    assert timestep.observation["image"][:, 1, 0].tolist() == [5, 6, 2, *rest]
    assert timestep.observation["more"][0][:, 2].tolist() == [5.5, 6.5, 2.5, *rest]
    assert timestep.step_type.tolist() == [StepType.MID] * 3 + [StepType.FIRST] * len(rest)


def test_rows_of_a_group_need_not_lie_together() -> None:
    pending = [_pending([3, 0]), _pending([1, 2])]
    slots = np.arange(4, dtype=np.int32)
    rows = [item.group.slots for item in pending]
    batch = Batch(pending, slots, slots.astype(np.int64), slots, "training", 0.0, 0, rows)
    staged, _, timestep = _stage(_shapes(4, 0), batch)
    assert staged.tolist() == timestep.reward.tolist() == [0, 1, 2, 3]
    assert timestep.observation["image"][:, 1, 1].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(("rows", "expected"), [(1, 2), (2, 2), (3, 3), (4, 4), (5, 8), (8, 8)])
def test_a_batch_takes_the_next_larger_shape(rows: int, expected: int) -> None:
    shapes = _shapes()
    assert shapes.act_rows == (2, 3, 4, 8)
    slots, positions, timestep = _stage(shapes, _batch(list(range(rows))))
    assert len(slots) == len(positions) == len(timestep.reward) == expected


def test_slots_of_full_pages_are_padded_with_slot_0() -> None:
    shapes = _shapes()
    assert shapes.page_rows == (1, 2, 8)
    assert shapes.pad_page_slots(np.array([7, 3, 5])).tolist() == [7, 3, 5, 0, 0, 0, 0, 0]
    assert shapes.pad_page_slots(np.array([6])).tolist() == [6]
    assert shapes.pad_page_slots(np.array([6])).dtype == np.int32
