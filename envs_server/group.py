"""A group of environments that are stepped together, between action and step payloads."""

from collections.abc import Sequence

import numpy as np

from envs_server.adapter import Adapter
from envs_server.errors import EnvironmentFailedError, FilmError, one_line
from envs_server.spaces import env_spec, to_own_actions
from envs_server.vector import VectorEnvironment
from seedrl.specs import EnvSpec
from seedrl.types import TimeStep
from seedrl.wire.action_layout import ActionLayout
from seedrl.wire.framing import ActionsPayload, FramedStep, WireError, step_message_bytes
from seedrl.wire.payload import StepLayout


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
    ) -> None:
        """`metrics` are the names of the numbers that LAST rows carry, "" for always NaN."""
        self._index = index
        self._environment = environment
        self._seeds = seeds
        self.spec: EnvSpec = env_spec(environment.observation_space, environment.action_space)
        self.action_layout = ActionLayout(self.spec.action, len(seeds))
        self._to_own_actions = to_own_actions(environment.action_space)
        self._layout = StepLayout(self.spec, len(seeds), len(metrics))
        self.longest_message_bytes = step_message_bytes(self._layout.most_bytes)
        self._adapter = Adapter(environment, metrics)
        self._sequence = -1

    def first(self) -> FramedStep:
        """Resets every environment; step 0. Raises EnvironmentFailedError."""
        try:
            return self._message(self._adapter.reset(self._seeds))
        except (Exception, SystemExit) as error:  # sys.exit would look like the end of training
            raise EnvironmentFailedError(
                f"reset of group {self._index}: {one_line(error)}"
            ) from error

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
            raise EnvironmentFailedError(
                f"step {self._sequence + 1} of group {self._index}: {one_line(error)}"
            ) from error

    def close(self) -> None:
        """Closes the environments."""
        self._environment.close()

    def _message(self, timestep: TimeStep) -> FramedStep:
        sequence, metrics = self._sequence + 1, self._adapter.metrics
        message = self._layout.pack_framed(self._index, sequence, timestep, metrics)
        self._sequence += 1
        return message
