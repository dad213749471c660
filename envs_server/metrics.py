"""Numbers that a learner asks for of each episode: from the `info` of its last step."""

import contextlib
import logging
import reprlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

_log = logging.getLogger("envs_server")
_ignored: set[str] = set()  # names of which it was logged


def measured(names: Sequence[str], info: Callable[[int], Any], rows: np.ndarray) -> np.ndarray:
    """`[L, M] float32` of these rows; NaN where the environment gave no such number.

    Names are keys of `info`, with a dot between those of nested dicts.
    """
    found = [[_measured(info, row, name) for name in names] for row in rows.tolist()]
    return np.array(found, np.float32).reshape(len(rows), len(names))


def _measured(info: Callable[[int], Any], row: int, name: str) -> float:
    value = None
    # `info` is the environment's own affair: whatever it holds or raises is no failure.
    with contextlib.suppress(Exception):
        if (value := _find(info(row), name)) is None:
            return np.nan
        if np.isfinite(number := _number(value)):
            return number
    if name not in _ignored:
        _ignored.add(name)  # one line, however many episodes end
        _log.warning("info[%r] is no finite number: ignored: %s", name, reprlib.repr(value))
    return np.nan


def _find(info: Any, name: str) -> Any:
    if not isinstance(info, Mapping):
        return None
    if name in info:
        return info[name]
    key, _, rest = name.partition(".")
    return _find(info.get(key), rest) if rest else None


def _number(value: Any) -> float:
    """A scalar of `info` as a float that float32 can hold; NaN if it is none."""
    array = np.asarray(value)  # a number of Python's, or a scalar of numpy, jax or torch
    if array.ndim or array.dtype.kind not in "biuf":
        return np.nan
    with np.errstate(over="ignore"):
        return float(array.astype(np.float32))
