"""Playing a recording in the place of environments."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from envs_server.playback import PlayedGroup
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec
from seedrl.types import StepType, TimeStep
from seedrl.wire.framing import (
    ActionsPayload,
    FramedStep,
    StepPayload,
    WireError,
    receive_from_env_server,
)
from seedrl.wire.payload import StepHeader, StepLayout, pack_actions, read_header
from seedrl.wire.recording import Record, Recording, RecordingHeader, RecordLayout
from seedrl.wire.seedrl_pb2 import (
    Assign,
    Environment,
    Finish,
    FromLearner,
    Group,
)
from seedrl.wire.spec import spec_of
from tests.patience import SECONDS
from tests.started import env_server

SPEC = EnvSpec({"a": ArraySpec((2,), "float32"), "b": ArraySpec((), "uint8")}, DiscreteSpec(999))
NUM_SLOTS, NUM_RECORDS = 4, 6
SLOTS = np.arange(NUM_SLOTS)


def _actions(number: int) -> np.ndarray:
    return (SLOTS + 10 * number).astype(np.int32)


def _write(path: Path) -> Path:
    """Slot s of record n has reward 10n + s, or 0 in the FIRST rows of record 0."""
    layout = RecordLayout(SPEC, NUM_SLOTS)
    data = [RecordingHeader(SPEC, SLOTS.tolist()).encode()]
    for number in range(NUM_RECORDS):
        step_type = StepType.MID if number else StepType.FIRST
        rewards = (SLOTS + 10 * number).astype(np.float32) * (number > 0)
        observation = {"a": np.repeat(rewards[:, None], 2, axis=1), "b": SLOTS.astype(np.uint8)}
        types, discount = np.full(NUM_SLOTS, step_type, np.uint8), np.ones(NUM_SLOTS, np.float32)
        timestep = TimeStep(types, rewards, discount, observation)
        data.append(layout.pack(number, Record(timestep, _actions(number))))
    path.write_bytes(b"".join(data))
    return path


@pytest.fixture
def recording(tmp_path: Path) -> Iterator[Recording]:
    with Recording(_write(tmp_path / "recording")) as opened:
        yield opened


def _read(step: FramedStep | None, num_envs: int) -> tuple[StepHeader, TimeStep]:
    assert step is not None
    payload = receive_from_env_server(step.message)
    assert isinstance(payload, StepPayload)
    return read_header(payload), StepLayout(SPEC, num_envs).unpack(payload)


def _answer(sequence: int, actions: np.ndarray) -> ActionsPayload:
    return ActionsPayload(pack_actions(7, sequence, actions))


@pytest.mark.parametrize("first_row", [0, 4])
def test_the_rows_of_its_slots_are_played_from_the_row_asked_for_to_the_end(
    recording: Recording, first_row: int
) -> None:
    slots = [3, 1]
    group = PlayedGroup(7, recording, slots, first_row)
    assert group.spec == SPEC
    step = group.first()
    for sequence, number in enumerate(range(first_row, NUM_RECORDS)):
        header, timestep = _read(step, 2)
        assert header == StepHeader(7, 2, sequence)
        marks = [(10 * number + slot) * (number > 0) for slot in slots]
        assert timestep.reward.tolist() == timestep.observation["a"][:, 1].tolist() == marks
        assert timestep.observation["b"].tolist() == slots
        step = group.step(_answer(sequence, _actions(number)[slots]))
    assert step is None


def test_an_action_other_than_the_recorded_one_is_an_error(recording: Recording) -> None:
    group = PlayedGroup(7, recording, [0, 2], 0)
    group.first()
    group.step(_answer(0, _actions(0)[[0, 2]]))
    with pytest.raises(WireError):
        group.step(_answer(1, _actions(1)[[0, 2]] + np.array([0, 1], np.int32)))


@pytest.mark.parametrize("learner", ["stream"], indirect=True)
def test_the_process_plays_to_the_end_and_then_waits(learner: Any, tmp_path: Path) -> None:
    """What is built, and whether it may be, is of no matter: nothing is."""
    hellos, steps = [], []

    def script(messages: Iterator[Any], context: Any) -> Iterator[Any]:
        hellos.append(next(messages).hello)
        groups = [Group(slots=[0, 1], seeds=[1, 2], first_row=4), Group(slots=[3], seeds=[3])]
        groups[1].first_row = 4
        yield FromLearner(assign=Assign(environments=[Environment(id="os:system")], groups=groups))
        assert spec_of(next(messages).ready.spec) == SPEC
        for _ in range(4):
            header = read_header(next(messages))
            steps.append(header)
            slots = list(groups[header.group].slots)
            actions = _actions(4 + header.sequence)[slots]
            yield ActionsPayload(pack_actions(header.group, header.sequence, actions))
        yield FromLearner(finish=Finish(reason="enough"))
        assert next(messages, None) is None

    learner.serve(script)
    process = env_server(
        *("--learner", learner.address, "--num-envs", "4"),
        *("--play", str(_write(tmp_path / "recording"))),
    )
    _, stderr = process.communicate(timeout=SECONDS)
    assert (process.returncode, hellos[0].plays_recording) == (0, True), stderr
    assert sorted(steps) == [StepHeader(g, n, s) for g, n in ((0, 2), (1, 1)) for s in (0, 1)]
    assert stderr.count("the recording ends after 6 batches; waiting") == 2
