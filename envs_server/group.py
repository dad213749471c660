"""A group of environments that are stepped together, between action and step payloads."""

from collections.abc import Sequence

import numpy as np

from envs_server.adapter import Adapter
from envs_server.factories import one_line
from envs_server.spaces import env_spec, first_action
from envs_server.vector import VectorEnvironment
from seedrl.specs import EnvSpec
from seedrl.types import TimeStep
from seedrl.wire.framing import ActionsPayload, FramedStep, WireError
from seedrl.wire.payload import StepLayout, unpack_actions


class EnvironmentFailedError(RuntimeError):
    """An environment raised, or returned what it did not promise; the text is one line."""


def read_actions(payload: ActionsPayload, num_envs: int, group: int, sequence: int) -> np.ndarray:
    """The actions `[E] int32` that answer step `sequence` of a group; WireError if they do not."""
    header, actions = unpack_actions(payload.data, num_envs)
    if header.sequence != sequence:
        raise WireError(
            f"expected actions for step {sequence} of group {group}, got them for step "
            f"{header.sequence}"
        )
    return actions


class EnvGroup:
    """Owns the environments of group number `index`, and knows which step is in flight.

    Used by one thread. Raises BuildError if the spaces are not supported.
    """

    def __init__(self, index: int, environment: VectorEnvironment, seeds: Sequence[int]) -> None:
        self._index = index
        self._environment = environment
        self._seeds = seeds
        self.spec: EnvSpec = env_spec(environment.observation_space, environment.action_space)
        self._first_action = first_action(environment.action_space)
        self._layout = StepLayout(self.spec, len(seeds))
        self._adapter = Adapter(environment)
        self._sequence = -1

    def first(self) -> FramedStep:
        """Resets every environment; step 0. Raises EnvironmentFailedError."""
        try:
            return self._message(self._adapter.reset(self._seeds))
        except Exception as error:
            raise EnvironmentFailedError(
                f"reset of group {self._index}: {one_line(error)}"
            ) from error

    def step(self, payload: ActionsPayload) -> FramedStep:
        """Takes the actions that answer the step in flight, and gives the next one.

        Raises WireError if they are not actions for it, EnvironmentFailedError if an environment
        fails.
        """
        actions = self._read(payload)
        try:
            return self._message(self._adapter.step(actions))
        except Exception as error:
            raise EnvironmentFailedError(
                f"step {self._sequence + 1} of group {self._index}: {one_line(error)}"
            ) from error

    def close(self) -> None:
        """Closes the environments."""
        self._environment.close()

    def _read(self, payload: ActionsPayload) -> np.ndarray:
        actions = read_actions(payload, len(self._seeds), self._index, self._sequence)
        # As unsigned numbers, negative actions are large.
        if actions.view(np.uint32).max() >= self.spec.num_actions:
            row = int(np.argmax(actions.view(np.uint32)))
            raise WireError(
                f"expected actions 0 to {self.spec.num_actions - 1} for group {self._index}, "
                f"got {actions[row]} for environment {row}"
            )
        return actions.astype(np.int64) + self._first_action

    def _message(self, timestep: TimeStep) -> FramedStep:
        message = self._layout.pack_framed(self._index, self._sequence + 1, timestep)
        self._sequence += 1
        return message
