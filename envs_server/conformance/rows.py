"""What an environment gave, row by row, in a form that two plays can be compared by."""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from seedrl.specs import ActionSpec, BoxSpec, EnvSpec
from seedrl.types import StepType, Tree


class Row(NamedTuple):
    """One time step of one environment, as the wire would carry it.

    Attributes:
      step_type: where in the episode.
      reward: as float32; 0 on FIRST.
      discount: 0 if the episode terminated here, else 1.
      observation: a digest of its bytes.
    """

    step_type: StepType
    reward: float
    discount: float
    observation: bytes


class Episode(NamedTuple):
    """An episode that was seen from FIRST to LAST."""

    length: int
    score: float
    is_terminated: bool


def digest(spec: EnvSpec, leaves: Sequence[Tree]) -> bytes:
    """Of an observation's `leaves`, in wire order and converted to the dtypes of `spec`."""
    state = hashlib.blake2b(digest_size=16)
    with np.errstate(all="ignore"):  # values that do not fit are reported elsewhere
        for (_, leaf_spec), leaf in zip(spec.leaves(), leaves, strict=True):
            state.update(np.ascontiguousarray(leaf, leaf_spec.dtype).data)
    return state.digest()


def first_difference(expected: Sequence[Row], got: Sequence[Row]) -> str | None:
    """Where two plays part, and in which fields; None if one is the beginning of the other."""
    for number, (row, other) in enumerate(zip(expected, got, strict=False)):
        fields = [
            name
            for name, mine, theirs in zip(Row._fields, row, other, strict=True)
            if mine != theirs
        ]
        if fields:
            return f"{place(expected, number)}: another {' and '.join(fields)}"
    return None


def place(rows: Sequence[Row], number: int) -> str:
    """Row `number` in words: `reset`, `step 3`, or `reset after step 3`."""
    step = sum(row.step_type != StepType.FIRST for row in rows[: number + 1])
    if rows[number].step_type != StepType.FIRST:
        return f"step {step}"
    return f"reset after step {step}" if step else "reset"


def episodes(rows: Sequence[Row]) -> list[Episode]:
    """The episodes that ended."""
    ended, length, score = [], 0, 0.0
    for row in rows:
        if row.step_type == StepType.FIRST:
            length, score = 0, 0.0
            continue
        length, score = length + 1, score + row.reward
        if row.step_type == StepType.LAST:
            ended.append(Episode(length, score, row.discount == 0))
    return ended


def action_rows(action: ActionSpec, num_rows: int, num_envs: int, seed: int) -> np.ndarray:
    """Random actions of the wire: `[num_rows, num_envs] int32` or `[..., *shape] float32`.

    Each environment first tries all discrete actions, in random order, or both ends of a box; then
    each action is drawn by itself, so that a walk gets as far as under a policy that knows nothing.
    """
    random = np.random.default_rng(seed)
    if isinstance(action, BoxSpec):
        boxes = [random.uniform(-1, 1, (num_rows, *action.shape)) for _ in range(num_envs)]
        rows = np.stack(boxes, axis=1).astype(np.float32)
        rows[:1], rows[1:2] = -1.0, 1.0
        return rows
    columns = [
        np.concatenate(
            [
                random.permutation(action.num_actions)[:num_rows],
                random.integers(action.num_actions, size=max(0, num_rows - action.num_actions)),
            ]
        )
        for _ in range(num_envs)
    ]
    return np.stack(columns, axis=1).astype(np.int32)


def other_actions(action: ActionSpec, actions: np.ndarray) -> np.ndarray:
    """A different one in the place of each of `actions`."""
    if isinstance(action, BoxSpec):
        return np.where(actions > 0, actions - 1, actions + 1).astype(np.float32)
    return ((actions + 1) % action.num_actions).astype(np.int32)
