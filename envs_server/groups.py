"""A group of environments that are stepped together, between action and step payloads.

`envs_server.loop` makes a `VectorEnvironment` of single environments; `envs_server.native` takes
those that exist as a vector.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Space

from envs_server.failures import BuildError, EnvironmentFailedError, Failures
from envs_server.spaces import env_spec, to_own_actions, with_info_mask
from seedrl.specs import EnvSpec
from seedrl.types import NEXT, StepType, TimeStep, Tree
from seedrl.wire.framing import ActionsPayload, FramedStep, WireError, step_message_bytes
from seedrl.wire.payload import ActionLayout, StepLayout, ValueFaultError

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
      continued: `[E] bool`, environments whose episode has terminated in this step, and which have
        started the next one: the observation is its question. None if there are none.
    """

    observation: Tree
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    info: Callable[[int], Any] = lambda row: {}
    restarted: np.ndarray | None = None
    continued: np.ndarray | None = None


class VectorEnvironment(NamedTuple):
    """E environments that reset themselves on the step after the one that ended an episode.

    Attributes:
      observation_space: of one environment.
      action_space: of one environment.
      reset: starts the first episodes from one seed per environment; observations `[E, *shape]`.
      step: takes actions as `action_space` wants them, `[E] int64` or `[E, *shape]` of its dtype.
        Raises ValueFaultError for numbers that a learner cannot take.
      close: frees the environments' resources.
      has_info_mask: after reset, True if observations have got the action mask of `info`: then they
        are dicts, see `with_info_mask`.
    """

    observation_space: Space[Any]
    action_space: Space[Any]
    reset: Callable[[Sequence[int]], Tree]
    step: Callable[[np.ndarray], VectorStep]
    close: Callable[[], None]
    has_info_mask: Callable[[], bool] = lambda: False


def seeds_of_reset(seeds: Sequence[int], number: int) -> list[int]:
    """New seeds for reset `number`, from 1 on, of a group, so that no episode is played twice."""
    sequences = [np.random.SeedSequence([seed, 0, number]) for seed in seeds]
    return [int(each.generate_state(1)[0]) >> 1 for each in sequences]


class EnvGroup:
    """Owns the environments of group number `index`, and knows which step is in flight.

    Gymnasium's NEXT_STEP autoreset returns the true last observation with the step that ended an
    episode, and on the next step, for an action that it ignores, the first observation of the next
    episode: exactly a LAST row followed by a FIRST row. An environment that was built again has a
    FIRST row too, in the place of whatever its broken episode would have given: a cut.

    Used by one thread. Raises BuildError if the spaces are not supported.

    Attributes:
      spec: of one environment; the action mask that `info` may have is known after `reset`.
      action_layout: of the payloads that answer its steps.
      longest_message_bytes: of a step in which every episode ends.
      metrics: `[L, M] float32`: of each row of the newest step that is LAST, in order, the numbers
        that were asked for; NaN where the environment gave none.
    """

    def __init__(
        self,
        index: int,
        environment: VectorEnvironment,
        seeds: Sequence[int],
        metrics: Sequence[str] = (),
        *,
        positions: Sequence[int] = (),
        failures: Failures | None = None,
    ) -> None:
        """Resets nothing yet.

        Args:
          index: the group's number.
          environment: of one environment for each of `seeds`.
          seeds: of their first episodes.
          metrics: the names of the numbers that LAST rows carry.
          positions: of each environment in `failures`; by default from 0 on.
          failures: counts those of a vector implementation, which end the stream.
        """
        self._index, self._environment, self._seeds = index, environment, seeds
        self._positions = positions or range(len(seeds))  # as in a check, which has one group
        self._failures = failures or Failures(len(seeds), 0)
        self.spec: EnvSpec = env_spec(environment.observation_space, environment.action_space)
        self.action_layout = ActionLayout(self.spec.action, len(seeds))
        # Made once: it looks at the space, and every step of every group passes it.
        self._to_own_actions = to_own_actions(environment.action_space)
        self.metrics = np.zeros((0, len(metrics)), np.float32)
        # Before anything is reset: spaces that no message can carry are refused at once.
        self._lay_out(self.spec)
        self._measure: Callable[..., np.ndarray] | None = None
        if metrics:
            from envs_server.metrics import measured

            self._measure = functools.partial(measured, metrics)
        # The environments whose episode has ended: their next row is FIRST.
        self._is_last = np.zeros(len(seeds), np.bool_)
        self._sequence = -1  # of the step in flight; none yet
        self._num_resets = 0  # beside the first
        self.close = environment.close

    def first(self) -> FramedStep:
        """Resets every environment; step 0. Raises EnvironmentFailedError."""
        return self._message("reset", self.reset)

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
            return self._message("reset", self._reset_again)
        return self._message("step", self.advance, self._to_own_actions(actions))

    def reset(self) -> TimeStep:
        """Starts the first episodes: every row is FIRST."""
        timestep = self._begun(self._seeds)
        if self._environment.has_info_mask():  # which only the first `info` shows
            self._lay_out(with_info_mask(self.spec))
        return timestep

    def _reset_again(self) -> TimeStep:
        self._num_resets += 1
        self._is_last = np.zeros(len(self._seeds), np.bool_)
        return self._begun(seeds_of_reset(self._seeds, self._num_resets))

    def _begun(self, seeds: Sequence[int]) -> TimeStep:
        num_envs = len(seeds)
        observation = self._environment.reset(seeds)
        self.metrics = self.metrics[:0]  # of the step before: no row of this one is LAST
        return TimeStep(
            np.full(num_envs, StepType.FIRST, np.uint8),
            np.zeros(num_envs, np.float32),
            np.ones(num_envs, np.float32),
            observation,
        )

    def advance(self, actions: np.ndarray) -> TimeStep:
        """Takes actions of the environment's own; leaves are `[E, ...]`, valid until the next step.

        An episode that terminates and is truncated at once has terminated. Raises ValueFaultError
        if an environment ends an episode with the very row that starts it.
        """
        step = self._environment.step(actions)
        observation, reward, terminated, truncated, info, restarted, continued = step
        is_first, self._is_last = self._is_last, np.logical_or(terminated, truncated)
        if restarted is not None:
            is_first = is_first | restarted
        step_type = self._is_last.view(np.uint8) + _MID  # LAST is the number after MID
        reward = np.array(reward, np.float32)  # a copy: FIRST rows are changed below
        if 1 in is_first.tobytes():  # hardly ever, and a fraction of the time of `any`
            if (is_first & self._is_last).any():
                row = int(np.argmax(is_first & self._is_last))
                text = f"environment {row} ended an episode with its first observation"
                raise ValueFaultError(text, row)
            step_type[is_first] = StepType.FIRST
            reward[is_first] = 0  # of an ignored action, or of a step that was broken off
        if continued is not None:
            step_type[continued] = NEXT
        # Of a truncated episode it stays 1: its last observation has a value, which bootstraps.
        discount = np.logical_not(terminated).astype(np.float32)
        if self._measure is not None:
            self.metrics = self._measure(info, np.flatnonzero(step_type >= StepType.LAST))
        return TimeStep(step_type, reward, discount, observation)

    def _lay_out(self, spec: EnvSpec) -> None:
        self.spec = spec
        self._layout = StepLayout(spec, len(self._seeds), self.metrics.shape[1])
        self.longest_message_bytes = step_message_bytes(self._layout.most_bytes)

    def _message(
        self, what: str, play: Callable[..., TimeStep], *actions: np.ndarray
    ) -> FramedStep:
        try:
            timestep = play(*actions)
            message = self._layout.pack_framed(
                self._index, self._sequence + 1, timestep, self.metrics
            )
        except (EnvironmentFailedError, BuildError):
            raise
        # What a vector implementation has raised, which names no environment, mostly. All: sys.exit
        # would look like the end of training.
        except BaseException as error:
            position = self._positions[error.row] if isinstance(error, ValueFaultError) else None
            where = f"{what} of group {self._index}"
            raise EnvironmentFailedError(self._failures.failed(position, where, error)) from error
        # Only now: a step that failed is never sent, so its number belongs to no step.
        self._sequence += 1
        if not self._failures.has_worked:  # FIRST rows are of resets
            self._failures.has_worked = bool((timestep.step_type != StepType.FIRST).any())
        return message
