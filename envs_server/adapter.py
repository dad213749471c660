"""Environments as groups step them, and gymnasium's results as time steps of dm_env semantics.

`envs_server.loop` makes a `VectorEnvironment` of single environments; `envs_server.native` takes
those that exist as a vector.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Space

from seedrl.types import StepType, TimeStep, Tree
from seedrl.wire.payload import ValueFaultError

_MID = np.uint8(StepType.MID)


class VectorStep(NamedTuple):
    """Result of one step of E environments, in gymnasium's terms.

    Attributes:
      observation: tree of `[E, *shape]`, only valid until the next step.
      reward: `[E]`, any real dtype.
      terminated: `[E] bool`.
      truncated: `[E] bool`.
      info: gives the `info` of the environment of a row.
      restarted: `[E] bool`, environments that were built again in this step, in the middle of an
        episode or not: the observation is the first of a new one. None if there are none.
    """

    observation: Tree
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    info: Callable[[int], Any] = lambda row: {}
    restarted: np.ndarray | None = None


class VectorEnvironment(NamedTuple):
    """E environments that reset themselves on the step after the one that ended an episode.

    Attributes:
      observation_space: of one environment.
      action_space: of one environment.
      reset: starts the first episodes from one seed per environment; observations `[E, *shape]`.
      step: takes actions as `action_space` wants them, `[E] int64` or `[E, *shape]` of its dtype.
        Raises ValueFaultError for numbers that a learner cannot take.
      close: frees the environments' resources.
    """

    observation_space: Space[Any]
    action_space: Space[Any]
    reset: Callable[[Sequence[int]], Tree]
    step: Callable[[np.ndarray], VectorStep]
    close: Callable[[], None]


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
        self.metrics = self._no_metrics = np.zeros((0, len(metrics)), np.float32)
        self._is_last = np.zeros(0, np.bool_)
        self._measure: Callable[[Callable[[int], Any], np.ndarray], np.ndarray] | None = None
        if metrics:
            from envs_server.metrics import Metrics

            self._measure = Metrics(metrics).of

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
        if an environment ends an episode with the very row that starts it.
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
                text = f"environment {row} ended an episode with its first observation"
                raise ValueFaultError(text, row)
            step_type[is_first] = StepType.FIRST
            reward[is_first] = 0
        discount = np.logical_not(terminated).astype(np.float32)
        if self._measure is not None:
            self.metrics = self._measure(info, np.flatnonzero(self._is_last))
        return TimeStep(step_type, reward, discount, observation)
