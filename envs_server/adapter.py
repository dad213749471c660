"""Gymnasium's results as time steps of dm_env semantics."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from envs_server.vector import VectorEnvironment
from seedrl.types import StepType, TimeStep
from seedrl.wire.values import ValueFaultError, check_rewards

_MID = np.uint8(StepType.MID)


class NoStepError(ValueFaultError):
    """An episode without a step."""


class Adapter:
    """Remembers which environments ended, for their next row is FIRST. Not thread-safe.

    Gymnasium's NEXT_STEP autoreset returns the true last observation with the step that ended an
    episode, and on the next step, for an action that it ignores, the first observation of the next
    episode: exactly a LAST row followed by a FIRST row.

    Attributes:
      metrics: `[L, M] float32`: of each row of the newest step that is LAST, in order, the numbers
        that were asked for; NaN where the environment gave none.
    """

    def __init__(
        self,
        environment: VectorEnvironment,
        metrics: Sequence[str] = (),
        max_abs_reward: float = 0.0,
    ) -> None:
        """`metrics` are the names of the numbers to take from `info` when an episode ends.

        `max_abs_reward` bounds rewards, 0 for no bound.
        """
        self._max_abs_reward = max_abs_reward
        self._environment = environment
        self._names = metrics
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

        An episode that terminates and is truncated at once has terminated. Raises ValueFaultError
        for a reward that a learner cannot take, NoStepError if an environment ends an episode with
        the very row that starts it.
        """
        observation, reward, terminated, truncated, info = self._environment.step(actions)
        is_first, self._is_last = self._is_last, np.logical_or(terminated, truncated)
        step_type = self._is_last.view(np.uint8) + _MID
        check_rewards(np.asarray(reward), self._max_abs_reward)  # before float32 cuts it
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
            self.metrics = episode_metrics(info, self._names, np.flatnonzero(self._is_last))
        return TimeStep(step_type, reward, discount, observation)


def episode_metrics(info: Mapping[str, Any], names: Sequence[str], rows: np.ndarray) -> np.ndarray:
    """`[L, M] float32`: of each of `rows [L]` of the environments the numbers of `names`.

    A name is a key of `info`, or keys of nested dicts with a dot between them. NaN stands for what
    is not there, is no number, or does not fit into float32.
    """
    metrics = np.full((len(rows), len(names)), np.nan, np.float32)
    for column, name in enumerate(names):
        found = _find(info, name)
        if found is not None:
            metrics[:, column] = found[rows]
    metrics[np.isinf(metrics)] = np.nan
    return metrics


def metric_names(info: Mapping[str, Any], rows: np.ndarray) -> list[str]:
    """All names under which `episode_metrics` finds a number in one of these rows."""
    names = list(_names(info))
    found = np.isfinite(episode_metrics(info, names, rows)).any(axis=0)
    return [name for name, is_there in zip(names, found, strict=True) if is_there]


def _names(info: Mapping[str, Any]) -> Iterator[str]:
    for key, value in info.items():
        if isinstance(value, Mapping):
            yield from (f"{key}.{name}" for name in _names(value))
        elif not key.startswith("_"):  # a mask
            yield key


def _find(info: Mapping[str, Any], name: str) -> np.ndarray | None:
    """`[E] float32` of all environments."""
    if name in info:
        return _numbers(info[name], info.get(f"_{name}"))
    key, _, rest = name.partition(".")
    inner = info.get(key)
    return _find(inner, rest) if rest and isinstance(inner, Mapping) else None


def _numbers(values: Any, mask: Any) -> np.ndarray | None:
    try:
        with np.errstate(over="ignore"):
            numbers = np.array(values, np.float64).astype(np.float32)
    except (TypeError, ValueError):
        return None
    if numbers.ndim != 1:
        return None
    if mask is not None:
        numbers[~np.asarray(mask, np.bool_)] = np.nan
    return numbers
