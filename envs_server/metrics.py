"""Numbers that a learner asks for of each episode: from the `info` of its last step."""

import logging
import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

_log = logging.getLogger("envs_server")


class Metrics:
    """Takes numbers from `info` by their names: keys, with a dot between those of nested dicts."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._ignored: set[str] = set()

    def of(self, info: Callable[[int], Any], rows: np.ndarray) -> np.ndarray:
        """`[L, M] float32` of these rows; NaN where the environment gave no such number."""
        metrics = np.full((len(rows), len(self._names)), np.nan, np.float32)
        for index, row in enumerate(rows.tolist()):
            own = info(row)
            for column, name in enumerate(self._names):
                if (value := _find(own, name) if name else None) is None:
                    continue
                metrics[index, column] = number = _number(value)
                if np.isnan(number) and name not in self._ignored:
                    self._ignored.add(name)  # one line, however many episodes end
                    line = "info[%r] is no finite number and is ignored: %.80r"
                    _log.warning(line, name, value)
        return metrics


def _find(info: Any, name: str) -> Any:
    if not isinstance(info, Mapping):
        return None
    if name in info:
        return info[name]
    key, _, rest = name.partition(".")
    return _find(info.get(key), rest) if rest else None


def _number(value: Any) -> float:
    """A scalar of `info` as a float that float32 can hold; NaN if it is none."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if not isinstance(value, numbers.Real | np.bool_):
        return np.nan
    with np.errstate(over="ignore"):
        try:
            as_float32 = np.float32(np.float64(value))
        except OverflowError:  # an integer beyond float64
            return np.nan
    return float(value) if np.isfinite(as_float32) else np.nan
