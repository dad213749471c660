"""A group whose steps are read from a recording instead of environments."""

import logging
from collections.abc import Sequence

import numpy as np

from envs_server.failures import BuildError
from envs_server.groups import read_actions
from seedrl.specs import EnvSpec
from seedrl.types import TimeStep
from seedrl.wire.framing import ActionsPayload, FramedStep, WireError, step_message_bytes
from seedrl.wire.payload import ActionLayout, StepLayout
from seedrl.wire.recording import Recording

_log = logging.getLogger("envs_server")


class PlayedGroup:
    """Plays some slots of a recording as group number `index`, from row `first_row` on.

    In the place of an `EnvGroup`. Used by one thread. Raises BuildError if the recording has no
    such slot or row.
    """

    def __init__(
        self, index: int, recording: Recording, slots: Sequence[int], first_row: int
    ) -> None:
        has = f"{recording.path} has {recording.num_slots} slots, {recording.num_records} batches"
        if max(slots) >= recording.num_slots:
            raise BuildError(f"expected a recording with slot {max(slots)}, {has}")
        if first_row > recording.num_records:
            raise BuildError(
                f"expected a recording of at least {first_row} batches, after which the learner "
                f"resumes, {has}"
            )
        self.spec: EnvSpec = recording.header.spec
        self._index = index
        self._recording = recording
        self._slots = np.array(slots)
        self._row = first_row
        self._layout = StepLayout(self.spec, len(slots))
        self.longest_message_bytes = step_message_bytes(self._layout.most_bytes)
        self._sequence = -1
        self.action_layout = ActionLayout(self.spec.action, len(slots))
        self._recorded_actions = np.zeros(0, np.int32)

    def first(self) -> FramedStep | None:
        """The next step; None if the recording has no more. Raises WireError if it is damaged."""
        record = self._recording.read(self._row)
        if record is None:
            _log.info("the recording ends after %d batches; waiting", self._row)
            return None
        self._row += 1
        self._sequence += 1
        self._recorded_actions = record.actions[self._slots]
        step_type, reward, discount, observation = record.timestep
        leaves = [leaf[self._slots] for leaf in self.spec.flatten(observation)]
        timestep = TimeStep(
            step_type[self._slots],
            reward[self._slots],
            discount[self._slots],
            self.spec.unflatten(leaves),
        )
        return self._layout.pack_framed(self._index, self._sequence, timestep)

    def step(self, payload: ActionsPayload) -> FramedStep | None:
        """Compares the actions with those recorded, and gives the next step; None at the end.

        Raises WireError if they are not actions for the step in flight, or others than recorded.
        """
        actions = read_actions(payload, self.action_layout, self._index, self._sequence)
        is_wrong = (actions != self._recorded_actions).reshape(len(actions), -1).any(axis=1)
        if is_wrong.any():
            row = int(np.argmax(is_wrong))
            raise WireError(
                f"expected action {self._recorded_actions[row]} for slot {self._slots[row]} in "
                f"batch {self._row - 1}, as recorded, got {actions[row]}: the learner does not "
                "repeat the recorded run"
            )
        return self.first()

    def close(self) -> None:
        """Nothing: the recording outlives its leases."""
