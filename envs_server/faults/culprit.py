"""Which environment of several is at fault, or at work: read from frames of the interpreter.

That costs nothing while all is well: to note the number of each environment before its step would
cost as much as some environments' steps.
"""

from collections.abc import Iterable, Sequence
from types import FrameType, TracebackType
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

from seedrl.wire.values import ValueFaultError


def close_each(environments: Iterable[gymnasium.Env[Any, Any]]) -> None:
    """Closes them, for `row_in` to see which one is at it: gymnasium's own loop does not count."""
    for i, environment in enumerate(environments):  # noqa: B007
        environment.close()


# Loops over environments, which count them in `i`: gymnasium's, and one of ours.
_LOOPS = frozenset({SyncVectorEnv.step.__code__, SyncVectorEnv.reset.__code__, close_each.__code__})
# What they call once they are through all of them.
_AFTER_LOOP = "gymnasium.vector.utils.space_utils"


def row_in(frames: Iterable[FrameType]) -> int | None:
    """The row that one of those loops is at; None if it is in none of them.

    Args:
      frames: outermost first.
    """
    row = None
    for frame in frames:
        if row is None and frame.f_code in _LOOPS:  # an environment may have such a loop too
            row = frame.f_locals.get("i")
        elif row is not None and frame.f_globals.get("__name__") == _AFTER_LOOP:
            return None
    return row


def row_of(error: BaseException) -> int | None:
    """The row of the environment that raised `error`; None if that is not known."""
    return error.row if isinstance(error, ValueFaultError) else row_in(_frames(error.__traceback__))


def misshapen_row(space: spaces.Space[Any], observations: Sequence[Any]) -> int | None:
    """The first row whose observation has another shape than `space`, if that is an array's."""
    if space.shape is None:
        return None
    shapes = map(np.shape, observations)
    return next((row for row, shape in enumerate(shapes) if shape != space.shape), None)


def _frames(traceback: TracebackType | None) -> Iterable[FrameType]:
    while traceback is not None:
        yield traceback.tb_frame
        traceback = traceback.tb_next
