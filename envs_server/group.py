"""A group of environments that are stepped together, between action and step payloads."""

from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import numpy as np

from envs_server.adapter import Adapter
from envs_server.errors import EnvironmentFailedError, FilmError, one_line
from envs_server.faults.culprit import row_in, row_of
from envs_server.spaces import env_spec, to_own_actions
from envs_server.vector import VectorEnvironment
from seedrl.specs import EnvSpec
from seedrl.types import TimeStep
from seedrl.wire.action_layout import ActionLayout
from seedrl.wire.framing import ActionsPayload, FramedStep, WireError, step_message_bytes
from seedrl.wire.payload import StepLayout
from seedrl.wire.values import ValueFaultError


class Place(NamedTuple):
    """Where an environment stands.

    Attributes:
      position: its number among those of the env server.
      slot: the learner's number of it.
    """

    position: int
    slot: int


def read_actions(
    payload: ActionsPayload, layout: ActionLayout, group: int, sequence: int
) -> np.ndarray:
    """The actions `[E, ...]` that answer step `sequence` of a group; WireError if they do not."""
    header, actions = layout.unpack(payload)
    if header.sequence != sequence:
        raise WireError(
            f"expected actions for step {sequence} of group {group}, got them for step "
            f"{header.sequence}"
        )
    return actions


class EnvGroup:
    """Owns the environments of group number `index`, and knows which step is in flight.

    Used by one thread. Raises BuildError if the spaces are not supported.

    Attributes:
      spec: of one environment.
      action_layout: of the payloads that answer its steps.
      longest_message_bytes: of a step in which every episode ends.
    """

    def __init__(
        self,
        index: int,
        environment: VectorEnvironment,
        seeds: Sequence[int],
        metrics: Sequence[str] = (),
        *,
        places: Sequence[Place] = (),
        max_abs_reward: float = 0.0,
    ) -> None:
        """Resets nothing yet.

        Args:
          index: the group's number.
          environment: of one environment for each of `seeds`.
          seeds: of their first episodes.
          metrics: the names of the numbers that LAST rows carry, "" for always NaN.
          places: where each environment stands; by default the first so many.
          max_abs_reward: bounds rewards, 0 for no bound.
        """
        self._index = index
        self._places = places or [Place(row, row) for row in range(len(seeds))]
        self._environment = environment
        self._seeds = seeds
        self.spec: EnvSpec = env_spec(environment.observation_space, environment.action_space)
        self.action_layout = ActionLayout(self.spec.action, len(seeds))
        self._to_own_actions = to_own_actions(environment.action_space)
        self._layout = StepLayout(self.spec, len(seeds), len(metrics))
        self.longest_message_bytes = step_message_bytes(self._layout.most_bytes)
        self._adapter = Adapter(environment, metrics, max_abs_reward)
        self._sequence = -1
        self._is_closing = False

    def first(self) -> FramedStep:
        """Resets every environment; step 0. Raises EnvironmentFailedError."""
        try:
            return self._message(self._adapter.reset(self._seeds))
        except (Exception, SystemExit) as error:  # sys.exit would look like the end of training
            raise self._failure(f"reset of group {self._index}", error) from error

    def step(self, payload: ActionsPayload) -> FramedStep:
        """Takes the actions that answer the step in flight, and gives the next one.

        Raises WireError if they are not actions for it, EnvironmentFailedError if an environment
        fails, FilmError if its film does.
        """
        actions = read_actions(payload, self.action_layout, self._index, self._sequence)
        try:
            return self._message(self._adapter.step(self._to_own_actions(actions)))
        except FilmError:
            raise
        except (Exception, SystemExit) as error:
            where = f"step {self._sequence + 1} of group {self._index}"
            raise self._failure(where, error) from error

    def overdue(self, frames: Sequence[FrameType], seconds: float) -> EnvironmentFailedError:
        """What there is to say of a step, the reset or `close` that takes longer than `seconds`.

        `frames` are those of the thread that is at it, outermost first. Called by another thread.
        """
        what, limit = f"step {self._sequence + 1}", f"{seconds:g} s (serving.step_deadline_seconds)"
        if self._is_closing or self._sequence < 0:
            what, limit = "close" if self._is_closing else "reset", f"{seconds:g} s"
        where = f"{what} of group {self._index}"
        code = frames[-1].f_code
        text = f"{where}: it hangs for {limit}, in {code.co_name} of {Path(code.co_filename).name}"
        return self._named(row_in(frames), text)

    def close(self) -> None:
        """Closes the environments."""
        self._is_closing = True
        self._environment.close()

    def _failure(self, where: str, error: BaseException) -> EnvironmentFailedError:
        """Names the environment that has failed, if it can be known which it was."""
        text = str(error) if isinstance(error, ValueFaultError) else one_line(error)
        return self._named(row_of(error), f"{where}: {text}")

    def _named(self, row: int | None, text: str) -> EnvironmentFailedError:
        if row is None:
            return EnvironmentFailedError(text)
        position, slot = self._places[row]
        return EnvironmentFailedError(f"environment {position} (slot {slot}), {text}", position)

    def _message(self, timestep: TimeStep) -> FramedStep:
        self._layout.check_observation(timestep.observation)
        sequence, metrics = self._sequence + 1, self._adapter.metrics
        message = self._layout.pack_framed(self._index, sequence, timestep, metrics)
        self._sequence += 1
        return message
