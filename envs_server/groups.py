"""A group of environments that are stepped together, between action and step payloads."""

from collections.abc import Callable, Sequence

import numpy as np

from envs_server.adapter import Adapter, VectorEnvironment
from envs_server.errors import EnvironmentFailedError
from envs_server.failures import Failures
from envs_server.spaces import env_spec, to_own_actions
from seedrl.specs import EnvSpec
from seedrl.types import StepType, TimeStep
from seedrl.wire.framing import ActionsPayload, FramedStep, WireError, step_message_bytes
from seedrl.wire.payload import ActionLayout, StepLayout, ValueFaultError


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
        positions: Sequence[int] = (),
        failures: Failures | None = None,
    ) -> None:
        """Resets nothing yet.

        Args:
          index: the group's number.
          environment: of one environment for each of `seeds`.
          seeds: of their first episodes.
          metrics: the names of the numbers that LAST rows carry, "" for always NaN.
          positions: of each environment in `failures`; by default the first so many.
          failures: counts those of a vector implementation, which end the stream.
        """
        self._index, self._environment, self._seeds = index, environment, seeds
        self._positions = positions or range(len(seeds))
        self._failures = failures or Failures(len(seeds))
        self.spec: EnvSpec = env_spec(environment.observation_space, environment.action_space)
        self.action_layout = ActionLayout(self.spec.action, len(seeds))
        self._to_own_actions = to_own_actions(environment.action_space)
        self._layout = StepLayout(self.spec, len(seeds), len(metrics))
        self.longest_message_bytes = step_message_bytes(self._layout.most_bytes)
        self._adapter = Adapter(environment, metrics)
        self._sequence = -1
        self.close = environment.close

    def first(self) -> FramedStep:
        """Resets every environment; step 0. Raises EnvironmentFailedError."""
        return self._message("reset", lambda: self._adapter.reset(self._seeds))

    def step(self, payload: ActionsPayload) -> FramedStep:
        """Takes the actions that answer the step in flight, and gives the next one.

        Its bytes may be the environments' memory: they are valid until the next step. Raises
        WireError if they are not actions for it, EnvironmentFailedError if an environment has
        failed and the group cannot go on.
        """
        actions = read_actions(payload, self.action_layout, self._index, self._sequence)
        return self._message("step", lambda: self._adapter.step(self._to_own_actions(actions)))

    def _message(self, what: str, play: Callable[[], TimeStep]) -> FramedStep:
        try:
            timestep = play()
            message = self._layout.pack_framed(
                self._index, self._sequence + 1, timestep, self._adapter.metrics
            )
        except EnvironmentFailedError:
            raise
        # What a vector implementation has raised, which names no environment, mostly. All: sys.exit
        # would look like the end of training.
        except BaseException as error:
            position = self._positions[error.row] if isinstance(error, ValueFaultError) else None
            where = f"{what} of group {self._index}"
            raise EnvironmentFailedError(self._failures.failed(position, where, error)) from error
        self._sequence += 1
        if not self._failures.has_worked:  # FIRST rows are of resets
            self._failures.has_worked = bool((timestep.step_type != StepType.FIRST).any())
        return message
