"""Turns and completions of token ids as rows of int32: see `Tokens` in the wire's .proto.

A row is a seed plus 1, or 0 for none; the number of ids; the ids; zeros. A turn is `[2 +
longest_turn] int32`, a completion `[2 + longest_completion] int32`. Imports numpy only.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from seedrl.specs import MOST_SEED, TokensSpec


def checked_ids(
    spec: TokensSpec, kind: Literal["turn", "completion"], ids: Sequence[int] | np.ndarray
) -> np.ndarray:
    """Raises ValueError for other than a list of ids, for too many, or for one out of range."""
    array, longest = np.asarray(ids), getattr(spec, f"longest_{kind}")
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(f"{kind}: expected a list of ids, got {ids!r:.80}")
    if len(array) > longest:
        raise ValueError(f"{kind}: expected at most {longest} ids, got {len(array)}")
    is_legal = (array >= 0) & (array < spec.vocabulary)
    if not is_legal.all():
        wrong = array[~is_legal][0]
        raise ValueError(f"{kind}: expected ids 0 to {spec.vocabulary - 1}, got {wrong}")
    return array


def turn_row(
    spec: TokensSpec, ids: Sequence[int] | np.ndarray, seed: int | None = None
) -> np.ndarray:
    """The row of a turn, see `checked_ids`; `seed` if it is the question that was asked for."""
    return _row(spec.longest_turn, seed, checked_ids(spec, "turn", ids))


def turn_ids(row: np.ndarray) -> np.ndarray:
    """The ids of a row, `[n] int32`: a view."""
    return row[2 : 2 + row[1]]


def completion_row(
    spec: TokensSpec, ids: Sequence[int] | np.ndarray, next_seed: int | None = None
) -> np.ndarray:
    """The row of a completion of at most `longest_completion` ids.

    `next_seed`, 0 to `MOST_SEED`: of the question to ask at once if the episode ends with it;
    without ids of the one to ask.
    """
    return _row(spec.longest_completion, next_seed, ids)


def _row(longest: int, seed: int | None, ids: Sequence[int] | np.ndarray) -> np.ndarray:
    row = np.zeros(2 + longest, np.int32)
    row[0] = 0 if seed is None else seed + 1
    row[1], row[2 : 2 + len(ids)] = len(ids), ids
    return row


def illegal_turns(spec: TokensSpec, rows: np.ndarray) -> np.ndarray:
    """`[E] bool`: which of the rows `[E, 2 + longest_turn] int32` are no turns."""
    # As unsigned numbers, negative ones are large. What follows the ids is zero: all are looked at.
    numbers = rows.view(np.uint32)
    is_illegal: np.ndarray = np.any(numbers[:, 2:] >= spec.vocabulary, axis=1)
    is_illegal |= numbers[:, 0] > MOST_SEED + 1
    return is_illegal | (numbers[:, 1] > spec.longest_turn)
