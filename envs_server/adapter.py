"""Gymnasium's results as time steps of dm_env semantics."""

from collections.abc import Sequence

import numpy as np

from envs_server.vector import VectorEnvironment
from seedrl.types import StepType, TimeStep

_MID = np.uint8(StepType.MID)


class Adapter:
    """Remembers which environments ended, for their next row is FIRST. Not thread-safe.

    Gymnasium's NEXT_STEP autoreset returns the true last observation with the step that ended an
    episode, and on the next step, for an action that it ignores, the first observation of the next
    episode: exactly a LAST row followed by a FIRST row.
    """

    def __init__(self, environment: VectorEnvironment) -> None:
        self._environment = environment
        self._is_last = np.zeros(0, np.bool_)

    def reset(self, seeds: Sequence[int]) -> TimeStep:
        """Starts the first episodes: every row is FIRST."""
        num_envs = len(seeds)
        observation = self._environment.reset(seeds)
        self._is_last = np.zeros(num_envs, np.bool_)
        return TimeStep(
            np.full(num_envs, StepType.FIRST, np.uint8),
            np.zeros(num_envs, np.float32),
            np.ones(num_envs, np.float32),
            observation,
        )

    def step(self, actions: np.ndarray) -> TimeStep:
        """Takes `actions [E] int64`; leaves are `[E, ...]`, valid until the next step.

        An episode that terminates and is truncated at once has terminated. Raises ValueError if an
        environment ends an episode with the very row that starts it.
        """
        observation, reward, terminated, truncated = self._environment.step(actions)
        is_first, self._is_last = self._is_last, np.logical_or(terminated, truncated)
        step_type = self._is_last.view(np.uint8) + _MID
        reward = np.array(reward, np.float32)
        if is_first.any():
            if (is_first & self._is_last).any():
                row = int(np.argmax(is_first & self._is_last))
                raise ValueError(f"environment {row} ended an episode with its first observation")
            step_type[is_first] = StepType.FIRST
            reward[is_first] = 0
        discount = np.logical_not(terminated).astype(np.float32)
        return TimeStep(step_type, reward, discount, observation)
