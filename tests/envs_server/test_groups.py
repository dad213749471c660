"""A group between payloads: numbers, actions as the environment counts them, and faults."""

from collections.abc import Sequence

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from envs_server.adapter import VectorEnvironment, VectorStep
from envs_server.errors import EnvironmentFailedError
from envs_server.groups import EnvGroup
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec
from seedrl.wire.framing import ActionsPayload, FramedStep, WireError, receive_from_env_server
from seedrl.wire.payload import StepHeader, StepLayout, pack_actions, read_header

_SPEC = EnvSpec(ArraySpec((), "float32", (-9.0,), (9.0,)), DiscreteSpec(3))
_LAYOUT = StepLayout(_SPEC, 2)


class Recorder:
    """Two environments whose actions start at -1; observations are what `observations` says."""

    def __init__(self, *observations: np.ndarray) -> None:
        self.actions: list[list[int]] = []
        self.is_closed = False
        self._observations = iter(observations)

    def environment(self) -> VectorEnvironment:
        space = Box(-9, 9, (), np.float32)
        return VectorEnvironment(space, Discrete(3, start=-1), self._reset, self._step, self._close)

    def _reset(self, seeds: Sequence[int]) -> np.ndarray:
        return next(self._observations)

    def _step(self, actions: np.ndarray) -> VectorStep:
        self.actions.append(actions.tolist())
        return VectorStep(
            next(self._observations), np.zeros(2), np.zeros(2, bool), np.zeros(2, bool)
        )

    def _close(self) -> None:
        self.is_closed = True


def _read(message: FramedStep) -> tuple[StepHeader, list[float]]:
    data = receive_from_env_server(message.message)
    return read_header(data), _LAYOUT.unpack(data).observation.tolist()


def _answer(sequence: int, *actions: int) -> ActionsPayload:
    return ActionsPayload(pack_actions(4, sequence, np.array(actions, np.int32)))


def test_steps_are_numbered_and_actions_counted_from_the_spaces_start() -> None:
    recorder = Recorder(*(np.full(2, n, np.float32) for n in range(3)))
    group = EnvGroup(4, recorder.environment(), [1, 2])
    assert group.spec == _SPEC
    assert _read(group.first()) == (StepHeader(4, 2, 0), [0, 0])
    assert _read(group.step(_answer(0, 0, 2))) == (StepHeader(4, 2, 1), [1, 1])
    assert _read(group.step(_answer(1, 1, 1))) == (StepHeader(4, 2, 2), [2, 2])
    assert recorder.actions == [[-1, 1], [0, 0]]
    group.close()
    assert recorder.is_closed


@pytest.mark.parametrize("sequence", [0, 2])
def test_actions_for_an_earlier_or_later_step_are_refused(sequence: int) -> None:
    recorder = Recorder(*(np.full(2, n, np.float32) for n in range(3)))
    group = EnvGroup(4, recorder.environment(), [1, 2])
    group.first()
    group.step(_answer(0, 0, 0))
    with pytest.raises(WireError):
        group.step(_answer(sequence, 0, 0))
    assert len(recorder.actions) == 1


def test_an_observation_that_breaks_the_spec_is_the_environments_fault() -> None:
    recorder = Recorder(np.zeros(2, np.float32), np.zeros(2, np.float64))
    group = EnvGroup(4, recorder.environment(), [1, 2])
    group.first()
    with pytest.raises(EnvironmentFailedError) as fault:
        group.step(_answer(0, 0, 0))
    assert "group 4" in str(fault.value) and "float64[2]" in str(fault.value)
