"""Turns and completions of token ids as rows of int32: see `Tokens` in the wire's .proto.

A turn is `[1 + longest_turn] int32`: the number of ids, the ids, zeros. A completion is
`[2 + longest_completion] int32`: a seed plus 1 (0 for none), the number of ids, the ids, zeros.
With a seed it is no answer: it asks for the question of that seed. Imports numpy only.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from seedrl.specs import MOST_SEED, TokensSpec


class Completion(NamedTuple):
    """What a policy answers to a turn: `ids [n] int32`, or None and the seed of a question."""

    ids: np.ndarray | None
    seed: int = 0


def turn_row(spec: TokensSpec, ids: Sequence[int] | np.ndarray) -> np.ndarray:
    """The row of a turn. Raises ValueError for a turn that is too long, or an id out of range."""
    array = np.asarray(ids)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(f"turn: expected a list of ids, got {array.dtype}{list(array.shape)}")
    if len(array) > spec.longest_turn:
        raise ValueError(f"turn: expected at most {spec.longest_turn} ids, got {len(array)}")
    is_legal = (array >= 0) & (array < spec.vocabulary)
    if not is_legal.all():
        wrong = array[~is_legal][0]
        raise ValueError(f"turn: expected ids 0 to {spec.vocabulary - 1}, got {wrong}")
    row = np.zeros(1 + spec.longest_turn, np.int32)
    row[0], row[1 : 1 + len(array)] = len(array), array
    return row


def turn_ids(row: np.ndarray) -> np.ndarray:
    """The ids of a turn's row, `[n] int32`: a view."""
    return row[1 : 1 + row[0]]


def completion_row(spec: TokensSpec, ids: Sequence[int] | np.ndarray) -> np.ndarray:
    """The row of a completion of at most `longest_completion` ids."""
    row = np.zeros(2 + spec.longest_completion, np.int32)
    row[1], row[2 : 2 + len(ids)] = len(ids), ids
    return row


def seed_row(spec: TokensSpec, seed: int) -> np.ndarray:
    """The row that asks for the question of `seed`, 0 to `MOST_SEED`."""
    assert 0 <= seed <= MOST_SEED, seed
    row = np.zeros(2 + spec.longest_completion, np.int32)
    row[0] = seed + 1
    return row


def read_completion(row: np.ndarray) -> Completion:
    """The content of a completion's row; its ids are a view."""
    if row[0]:
        return Completion(None, int(row[0]) - 1)
    return Completion(row[2 : 2 + row[1]])


def illegal_turns(spec: TokensSpec, rows: np.ndarray) -> np.ndarray:
    """`[E] bool`: which of the rows `[E, 1 + longest_turn] int32` are no turns."""
    lengths, ids = rows[:, 0], rows[:, 1:]
    is_legal = (lengths >= 0) & (lengths <= spec.longest_turn)
    # What follows the ids is zero: so all of them can be looked at.
    in_range = ((ids >= 0) & (ids < spec.vocabulary)).all(axis=1)
    return ~(is_legal & in_range)
