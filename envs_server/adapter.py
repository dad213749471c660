"""Gymnasium's results as time steps of dm_env semantics."""

import logging
import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from envs_server.vector import VectorEnvironment, info_of
from seedrl.types import StepType, TimeStep
from seedrl.wire.values import ValueFaultError

_log = logging.getLogger("envs_server")

_MID = np.uint8(StepType.MID)


class NoStepError(ValueFaultError):
    """An episode without a step."""


class Adapter:
    """Remembers which environments ended, because their next row is FIRST. Not thread-safe.

    Gymnasium's NEXT_STEP autoreset returns the true last observation with the step that ended an
    episode, and on the next step, for an action that it ignores, the first observation of the next
    episode: exactly a LAST row followed by a FIRST row. An environment that was built again has a
    FIRST row too, in the place of whatever its broken episode would have given: a cut.

    Attributes:
      metrics: `[L, M] float32`: of each row of the newest step that is LAST, in order, the numbers
        that were asked for; NaN where the environment gave none.
    """

    def __init__(self, environment: VectorEnvironment, metrics: Sequence[str] = ()) -> None:
        """`metrics` are the names of the numbers to take from `info` when an episode ends."""
        self._environment = environment
        self._names = metrics
        self._ignored: set[str] = set()
        self.metrics = self._no_metrics = np.zeros((0, len(metrics)), np.float32)
        self._is_last = np.zeros(0, np.bool_)

    def reset(self, seeds: Sequence[int]) -> TimeStep:
        """Starts the first episodes: every row is FIRST."""
        num_envs = len(seeds)
        observation = self._environment.reset(seeds)
        self._is_last = np.zeros(num_envs, np.bool_)
        self.metrics = self._no_metrics
        return TimeStep(
            np.full(num_envs, StepType.FIRST, np.uint8),
            np.zeros(num_envs, np.float32),
            np.ones(num_envs, np.float32),
            observation,
        )

    def step(self, actions: np.ndarray) -> TimeStep:
        """Takes actions of the environment's own; leaves are `[E, ...]`, valid until the next step.

        An episode that terminates and is truncated at once has terminated. Raises NoStepError if an
        environment ends an episode with the very row that starts it.
        """
        observation, reward, terminated, truncated, info, restarted = self._environment.step(
            actions
        )
        is_first, self._is_last = self._is_last, np.logical_or(terminated, truncated)
        if restarted is not None:
            is_first = is_first | restarted
        step_type = self._is_last.view(np.uint8) + _MID
        reward = np.array(reward, np.float32)
        if 1 in is_first.tobytes():  # hardly ever, and a fraction of the time of `any`
            if (is_first & self._is_last).any():
                row = int(np.argmax(is_first & self._is_last))
                raise NoStepError(
                    f"environment {row} ended an episode with its first observation", row
                )
            step_type[is_first] = StepType.FIRST
            reward[is_first] = 0
        discount = np.logical_not(terminated).astype(np.float32)
        if self._names:
            self.metrics = self._metrics(info, np.flatnonzero(self._is_last))
        return TimeStep(step_type, reward, discount, observation)

    def _metrics(self, info: Sequence[Any] | Mapping[str, Any], rows: np.ndarray) -> np.ndarray:
        metrics = np.full((len(rows), len(self._names)), np.nan, np.float32)
        for index, row in enumerate(rows.tolist()):
            own = info_of(info, row)
            for column, name in enumerate(self._names):
                metrics[index, column] = self._metric(own, name)
        return metrics

    def _metric(self, info: Any, name: str) -> float:
        value = _find(info, name) if name else None
        metric = _number(value)
        if value is not None and np.isnan(metric) and name not in self._ignored:
            self._ignored.add(name)  # one line, however many episodes end
            _log.warning("info[%r] is no finite number and is ignored: %.80r", name, value)
        return metric


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


def _find(info: Any, name: str) -> Any:
    """The value of a key, or of keys of nested dicts with a dot between them."""
    if not isinstance(info, Mapping):
        return None
    if name in info:
        return info[name]
    key, _, rest = name.partition(".")
    return _find(info.get(key), rest) if rest else None
