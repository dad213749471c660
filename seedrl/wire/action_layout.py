"""Action payloads as env servers read them: those that the spec rules out are refused."""

from typing import NamedTuple

import numpy as np

from seedrl.specs import ActionSpec, DiscreteSpec
from seedrl.wire.framing import WireError
from seedrl.wire.payload import HEADER, Buffer, check_length, read_section, section_of


class StepHeader(NamedTuple):
    """First 16 bytes of a payload: the group, its number of environments, and the step's number."""

    group: int
    num_envs: int
    sequence: int


def read_header(data: Buffer) -> StepHeader:
    """The header of a step or actions payload. Raises WireError if `data` is too short for one."""
    check_length(data)
    return StepHeader(*HEADER.unpack_from(data))


class ActionLayout:
    """Where everything lies in action payloads for `num_envs` environments. Immutable."""

    def __init__(self, action: ActionSpec, num_envs: int) -> None:
        self._num_envs = num_envs
        self._section = section_of("actions", action.array, (num_envs,), HEADER.size)
        # As unsigned numbers, negative actions are large.
        self._num_actions = action.num_actions if isinstance(action, DiscreteSpec) else 0
        self.num_bytes = self._section.stop + len(self._section.padding)

    def size(self, data: Buffer) -> int:
        """Length of every such payload."""
        return self.num_bytes

    def unpack(self, data: Buffer) -> tuple[StepHeader, np.ndarray]:
        """The header and the actions, `[E] int32` or `[E, *shape] float32`, a read-only view.

        Raises WireError if the length or the number of environments differs, if padding is not
        zero, or if an action is not one of the spec: not 0 to n - 1, or not -1 to 1.
        """
        header = read_header(data)
        if header.num_envs != self._num_envs:
            raise WireError(
                f"expected actions for {self._num_envs} environments, got {header.num_envs}"
            )
        if len(data) != self.num_bytes:
            raise WireError(
                f"expected an actions payload of {self.num_bytes} bytes, got {len(data)}"
            )
        actions = read_section(memoryview(data).toreadonly(), self._section)
        self._check(header.group, actions)
        return header, actions

    def _check(self, group: int, actions: np.ndarray) -> None:
        if self._num_actions:
            is_legal = actions.view(np.uint32) < self._num_actions
        else:
            is_legal = np.abs(actions) <= 1.0  # also false for NaN
        # Bytes again, as in the checks of a step: a fraction of the time of `all`.
        if 0 in is_legal.tobytes():
            position = np.argwhere(~is_legal)[0]
            expected = f"0 to {self._num_actions - 1}" if self._num_actions else "-1 to 1"
            raise WireError(
                f"expected actions {expected} for group {group}, got {actions[tuple(position)]} "
                f"for environment {position[0]}"
            )
