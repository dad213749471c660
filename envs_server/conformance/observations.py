"""Whether an observation is what its space declares."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from envs_server.conformance import rules
from envs_server.conformance.findings import Findings, show
from seedrl.types import Tree
from seedrl.wire.framing import WireError
from seedrl.wire.values import OBSERVATION_CHECKS


def check_observation(
    space: spaces.Space[Any], value: Tree, findings: Findings, *, where: str
) -> bool:
    """Adds what is wrong with `value`; `where` says which one it is, e.g. `step 3`.

    Returns:
      Whether it can still be read as arrays of the declared structure and shapes.
    """
    return _check("observation", space, value, _Report(findings, where))


class _Report:
    """Adds findings about one observation."""

    def __init__(self, findings: Findings, where: str) -> None:
        self._findings, self._where = findings, where

    def __call__(self, rule: rules.Rule, path: str, text: str) -> None:
        self._findings.add(rule, f"{self._where}: {text}", subject=path)


def _check(path: str, space: spaces.Space[Any], value: Tree, report: _Report) -> bool:
    match space:
        case spaces.Dict():
            return _check_dict(path, space, value, report)
        case spaces.Tuple():
            return _check_tuple(path, space, value, report)
    return _check_leaf(path, space, value, report)


def _check_dict(path: str, space: spaces.Dict, value: Tree, report: _Report) -> bool:
    if not isinstance(value, Mapping) or value.keys() != space.spaces.keys():
        found = f"keys {sorted(map(str, value))}" if isinstance(value, Mapping) else show(value)
        text = f"expected a dict with keys {sorted(space.spaces)} for {path}, got {found}"
        report(rules.OBSERVATION_STRUCTURE, path, text)
        return False
    # A list: every item is to be looked at, even after one that is unreadable.
    return all(
        [_check(f"{path}.{key}", item, value[key], report) for key, item in space.spaces.items()]
    )


def _check_tuple(path: str, space: spaces.Tuple, value: Tree, report: _Report) -> bool:
    size = len(space.spaces)
    if not isinstance(value, tuple | list) or len(value) != size:
        text = f"expected a tuple of {size} for {path}, got {show(value)}"
        report(rules.OBSERVATION_STRUCTURE, path, text)
        return False
    return all(
        [
            _check(f"{path}.{i}", item, part, report)
            for i, (item, part) in enumerate(zip(space.spaces, value, strict=True))
        ]
    )


def _check_leaf(path: str, space: spaces.Space[Any], value: Tree, report: _Report) -> bool:
    is_number = isinstance(space, spaces.Discrete) and type(value) is int
    if not is_number and not isinstance(value, np.ndarray | np.generic):
        text = f"expected {_declared(space)} for {path}, got {show(value)}"
        report(rules.OBSERVATION_DTYPE, path, text)
        return False
    array = np.asarray(value)
    if array.shape != (space.shape or ()):
        text = f"expected {_declared(space)} for {path}, got {array.dtype}{list(array.shape)}"
        report(rules.OBSERVATION_SHAPE, path, text)
        return False
    if not _check_dtype(path, space, array, report):
        return array.dtype.kind in "buif"
    _check_values(path, space, array, report)
    return True


def _check_dtype(path: str, space: spaces.Space[Any], array: np.ndarray, report: _Report) -> bool:
    """Whether the values can be compared with the bounds of the space."""
    # Any integer will do where the space is a choice of numbers.
    is_choice = isinstance(space, spaces.Discrete) and array.dtype.kind in "iu"
    if is_choice or array.dtype == space.dtype:
        return True
    text = f"expected {_declared(space)} for {path}, got {array.dtype}{list(array.shape)}"
    is_safe = space.dtype is not None and np.can_cast(array.dtype, space.dtype)
    report(rules.OBSERVATION_CAST if is_safe else rules.OBSERVATION_DTYPE, path, text)
    return is_safe


def _check_values(path: str, space: spaces.Space[Any], array: np.ndarray, report: _Report) -> None:
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        position = _first(~np.isfinite(array))
        text = f"expected finite numbers, got {array[position]} in {path}{list(position)}"
        report(rules.OBSERVATION_FINITE, path, text)
        return
    if check := OBSERVATION_CHECKS.get(array.dtype.name):
        try:
            check(path, array)
        except WireError as error:
            report(rules.OBSERVATION_WIDTH, path, str(error))
            return
    low, high = _bounds(space)
    is_outside = (array < low) | (array > high)
    if np.any(is_outside):
        position = _first(np.asarray(is_outside))
        least, most = (np.broadcast_to(bound, array.shape)[position] for bound in (low, high))
        text = f"expected {least} to {most}, got {array[position]} in {path}{list(position)}"
        report(rules.OBSERVATION_RANGE, path, text)


def _bounds(space: spaces.Space[Any]) -> tuple[Any, Any]:
    match space:
        case spaces.Box():
            return space.low, space.high
        case spaces.Discrete():
            return space.start, space.start + space.n - 1
        case spaces.MultiDiscrete():
            return space.start, space.start + space.nvec - 1
    assert isinstance(space, spaces.MultiBinary), "env_spec has refused it"
    return 0, 1


def _first(mask: np.ndarray) -> tuple[int, ...]:
    return tuple(np.argwhere(mask)[0].tolist())


def _declared(space: spaces.Space[Any]) -> str:
    return f"{space.dtype}{list(space.shape or ())}"
