"""A group of environments that are stepped together, between action and step payloads.

`envs_server.loop` steps single environments, `envs_server.native` those that exist as a vector.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from gymnasium.spaces import Space

from envs_server.spaces import to_own_actions
from seedrl.specs import EnvSpec
from seedrl.types import StepType, TimeStep, Tree
from seedrl.wire.framing import ActionsPayload, FramedStep, WireError
from seedrl.wire.payload import ActionLayout, StepLayout

_LAST = StepType.LAST.value


class VectorStep(NamedTuple):
    """Result of one step of E environments.

    Attributes:
      timestep: leaves `[E, ...]`; the observation is only valid until the next step.
      info: gives the `info` of the environment of a row.
    """

    timestep: TimeStep
    info: Callable[[int], Any]


class VectorEnvironment(Protocol):
    """E environments that reset themselves on the step after the one that ended an episode.

    Gymnasium's NEXT_STEP autoreset returns the true last observation with the step that ended an
    episode, and on the next step, for an action that it ignores, the first observation of the next
    episode: exactly a LAST row followed by a FIRST row. An environment that was built again has a
    FIRST row too, in the place of whatever its broken episode would have given: a cut.

    Used by one thread. `reset` and `step` raise EnvironmentFailedError if an environment has failed
    and the others cannot go on without it.

    Attributes:
      spec: of one environment; the action mask that `info` may have is in it after the first reset.
        Raises BuildError if the spaces are not supported.
      action_space: of one environment.
    """

    @property
    def spec(self) -> EnvSpec: ...
    @property
    def action_space(self) -> Space[Any]: ...
    # Starts episodes from one seed per environment; observations `[E, *shape]`.
    def reset(self, seeds: Sequence[int]) -> Tree: ...
    # Takes actions as `action_space` wants them, `[E] int64` or `[E, *shape]` of its dtype.
    def step(self, actions: np.ndarray) -> VectorStep: ...
    # Frees the environments' resources.
    def close(self) -> None: ...


def seeds_of_reset(seeds: Sequence[int], number: int) -> list[int]:
    """New seeds for reset `number`, from 1 on, of a group, so that no episode is played twice."""
    sequences = [np.random.SeedSequence([seed, 0, number]) for seed in seeds]
    return [int(each.generate_state(1)[0]) >> 1 for each in sequences]


class EnvGroup:
    """Owns the environments of group number `index`, and knows which step is in flight.

    Used by one thread. Raises BuildError if the spaces are not supported.

    Attributes:
      action_layout: of the payloads that answer its steps.
      metrics: `[L, M] float32`: of each row of the newest step that is LAST, in order, the numbers
        that were asked for; NaN where the environment gave none.
    """

    def __init__(
        self,
        index: int,
        environment: VectorEnvironment,
        seeds: Sequence[int],
        metrics: Sequence[str] = (),
    ) -> None:
        """Resets nothing yet.

        Args:
          index: the group's number.
          environment: of one environment for each of `seeds`.
          seeds: of their first episodes.
          metrics: the names of the numbers that LAST rows carry.
        """
        self._index, self._environment, self._seeds = index, environment, seeds
        self.action_layout = ActionLayout(environment.spec.action, len(seeds))
        # Made once: it looks at the space, and every step of every group passes it.
        self._to_own_actions = to_own_actions(environment.action_space)
        self.metrics = np.zeros((0, len(metrics)), np.float32)
        self._measure: Callable[..., np.ndarray] | None = None
        if metrics:
            from envs_server.metrics import measured

            self._measure = functools.partial(measured, metrics)
        self._sequence = -1  # of the step in flight; none yet
        self._num_resets = 0  # beside the first
        self.close = environment.close

    @property
    def spec(self) -> EnvSpec:
        """See `VectorEnvironment.spec`."""
        return self._environment.spec

    def first(self) -> FramedStep:
        """Resets every environment; step 0. Raises EnvironmentFailedError."""
        timestep = self.reset()
        # Only now: the first `info` shows whether observations have an action mask.
        self._layout = StepLayout(self.spec, len(self._seeds), self.metrics.shape[1])
        return self._message(timestep)

    def step(self, payload: ActionsPayload) -> FramedStep:
        """Takes the actions that answer the step in flight, and gives the next one.

        Its bytes may be the environments' memory: they are valid until the next step. Raises
        WireError if they are not actions for it, EnvironmentFailedError if an environment has
        failed and the group cannot go on.
        """
        header, actions = self.action_layout.unpack(payload)
        # Of the step in flight, and no other: none is answered twice, or by another's actions.
        if header.sequence != self._sequence:
            raise WireError(
                f"expected actions for step {self._sequence} of group {self._index}, got them for "
                f"step {header.sequence}"
            )
        if actions is None:
            self._num_resets += 1
            return self._message(self.reset(seeds_of_reset(self._seeds, self._num_resets)))
        return self._message(self.advance(self._to_own_actions(actions)))

    def reset(self, seeds: Sequence[int] = ()) -> TimeStep:
        """Starts episodes, by default the first ones: every row is FIRST."""
        observation = self._environment.reset(seeds or self._seeds)
        self.metrics = self.metrics[:0]  # of the step before: no row of this one is LAST
        num_envs = len(self._seeds)
        reward, discount = np.zeros(num_envs, np.float32), np.ones(num_envs, np.float32)
        return TimeStep(np.full(num_envs, StepType.FIRST, np.uint8), reward, discount, observation)

    def advance(self, actions: np.ndarray) -> TimeStep:
        """Takes actions of the environment's own; leaves are `[E, ...]`, valid until the next step.

        An episode that terminates and is truncated at once has terminated.
        """
        timestep, info = self._environment.step(actions)
        if self._measure is not None:
            self.metrics = self._measure(info, np.flatnonzero(timestep.step_type >= _LAST))
        return timestep

    def _message(self, timestep: TimeStep) -> FramedStep:
        # A step that failed is never sent, so its number belongs to no step.
        self._sequence += 1
        return self._layout.pack_framed(self._index, self._sequence, timestep, self.metrics)
