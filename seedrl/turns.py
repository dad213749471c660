"""Turns and completions of token ids as rows of int32: see `Tokens` in the wire's .proto.

A row is a seed plus 1, or 0 for none; the number of ids; the ids; zeros. A turn is `[2 +
longest_turn] int32`, a completion `[2 + longest_completion] int32`. A completion with a seed is no
answer: it asks for the question of that seed, and the turn with that question has the same seed.
Imports numpy only.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from seedrl.specs import MOST_SEED, TokensSpec


class Completion(NamedTuple):
    """What a policy answers to a turn: `ids [n] int32`, or None and the seed of a question."""

    ids: np.ndarray | None
    seed: int = 0


def turn_row(
    spec: TokensSpec, ids: Sequence[int] | np.ndarray, seed: int | None = None
) -> np.ndarray:
    """The row of a turn; `seed` if it is the question that was asked for.

    Raises ValueError for a turn that is too long, or an id out of range.
    """
    array = np.asarray(ids)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(f"turn: expected a list of ids, got {array.dtype}{list(array.shape)}")
    if len(array) > spec.longest_turn:
        raise ValueError(f"turn: expected at most {spec.longest_turn} ids, got {len(array)}")
    is_legal = (array >= 0) & (array < spec.vocabulary)
    if not is_legal.all():
        wrong = array[~is_legal][0]
        raise ValueError(f"turn: expected ids 0 to {spec.vocabulary - 1}, got {wrong}")
    return _row(spec.longest_turn, 0 if seed is None else seed + 1, array)


def turn_ids(row: np.ndarray) -> np.ndarray:
    """The ids of a turn's row, `[n] int32`: a view."""
    return row[2 : 2 + row[1]]


def completion_row(spec: TokensSpec, ids: Sequence[int] | np.ndarray) -> np.ndarray:
    """The row of a completion of at most `longest_completion` ids."""
    return _row(spec.longest_completion, 0, ids)


def seed_row(spec: TokensSpec, seed: int) -> np.ndarray:
    """The row that asks for the question of `seed`, 0 to `MOST_SEED`."""
    assert 0 <= seed <= MOST_SEED, seed
    return _row(spec.longest_completion, seed + 1, ())


def _row(longest: int, first: int, ids: Sequence[int] | np.ndarray) -> np.ndarray:
    row = np.zeros(2 + longest, np.int32)
    row[0], row[1], row[2 : 2 + len(ids)] = first, len(ids), ids
    return row


def read_completion(row: np.ndarray) -> Completion:
    """The content of a completion's row; its ids are a view."""
    if row[0]:
        return Completion(None, int(row[0]) - 1)
    return Completion(row[2 : 2 + row[1]])


def illegal_turns(spec: TokensSpec, rows: np.ndarray) -> np.ndarray:
    """`[E] bool`: which of the rows `[E, 2 + longest_turn] int32` are no turns."""
    # As unsigned numbers, negative ones are large. What follows the ids is zero: all are looked at.
    is_illegal: np.ndarray = rows.view(np.uint32) > spec.largest_turn.view(np.uint32)
    return np.any(is_illegal, axis=1)
