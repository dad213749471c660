"""Recordings: what was written comes back, and only what is complete and whole."""

from pathlib import Path

import numpy as np
import pytest

from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec
from seedrl.types import StepType, TimeStep
from seedrl.wire.framing import WireError
from seedrl.wire.recording import Record, Recording, RecordingHeader, RecordLayout

SPEC = EnvSpec({"a": ArraySpec((2,), "float64"), "b": (ArraySpec((), "bool"),)}, DiscreteSpec(9))
N = 3
LAYOUT = RecordLayout(SPEC, N)


def _record(number: int) -> Record:
    random = np.random.default_rng(number)
    observation = {"a": random.normal(size=(N, 2)), "b": (random.integers(0, 2, N) == 1,)}
    timestep = TimeStep(
        np.array([StepType.FIRST, StepType.MID, StepType.LAST], np.uint8),
        np.array([0, number, -number], np.float32),
        np.array([1, 1, 0], np.float32),
        observation,
    )
    return Record(timestep, random.integers(0, 9, N, dtype=np.int32))


def _write(path: Path, num_records: int) -> bytes:
    records = [LAYOUT.pack(number, _record(number)) for number in range(num_records)]
    data = RecordingHeader(SPEC, [7, 8, 9]).encode() + b"".join(records)
    path.write_bytes(data)
    return data


def _assert_is(record: Record | None, number: int) -> None:
    assert record is not None
    expected = _record(number)
    np.testing.assert_array_equal(record.actions, expected.actions)
    for leaf, wanted in zip(record.timestep[:3], expected.timestep[:3], strict=True):
        np.testing.assert_array_equal(leaf, wanted)
    got = SPEC.flatten(record.timestep.observation)
    for leaf, wanted in zip(got, SPEC.flatten(expected.timestep.observation), strict=True):
        assert leaf.dtype == wanted.dtype
        np.testing.assert_array_equal(leaf, wanted)


def test_what_was_recorded_comes_back_by_its_number(tmp_path: Path) -> None:
    _write(tmp_path / "recording", 4)
    with Recording(tmp_path / "recording") as recording:
        assert recording.header == RecordingHeader(SPEC, [7, 8, 9])
        assert (recording.num_slots, recording.num_records) == (N, 4)
        for number in (2, 0, 3, 1):
            _assert_is(recording.read(number), number)


@pytest.mark.parametrize("missing", [1, LAYOUT.num_bytes - 1])
def test_a_record_that_a_dying_process_left_half_written_does_not_count(
    tmp_path: Path, missing: int
) -> None:
    data = _write(tmp_path / "recording", 3)
    (tmp_path / "recording").write_bytes(data[:-missing])
    with Recording(tmp_path / "recording") as recording:
        assert recording.num_records == 2
        _assert_is(recording.read(1), 1)
        assert recording.read(2) is None
        assert recording.read(99) is None
        # It may still grow while it is read.
        (tmp_path / "recording").write_bytes(data)
        assert recording.num_records == 3
        _assert_is(recording.read(2), 2)


# Its number; the actions' own, after which come three actions and four zeros; a step type; padding.
@pytest.mark.parametrize(
    ("offset", "byte"), [(8, 77), (LAYOUT.num_bytes - 24, 77), (16, 9), (19, 1)]
)
def test_a_damaged_record_is_refused(tmp_path: Path, offset: int, byte: int) -> None:
    data = bytearray(_write(tmp_path / "recording", 2))
    data[len(data) - LAYOUT.num_bytes + offset] = byte
    (tmp_path / "recording").write_bytes(data)
    with Recording(tmp_path / "recording") as recording:
        _assert_is(recording.read(0), 0)
        with pytest.raises(WireError):
            recording.read(1)


@pytest.mark.parametrize(
    "start",
    [
        b"",
        b"no recording at all\n",
        b'{"seedrl_recording": 2, "num_slots": 3}\n',
        b"[]\n",
        RecordingHeader(SPEC, [7, 8, 9]).encode()[:-1],
        RecordingHeader(SPEC, []).encode(),
        RecordingHeader(SPEC, [7, 8, 9]).encode().replace(b'"num_slots": 3', b'"num_slots": 4'),
    ],
)
def test_other_files_are_refused_by_name(tmp_path: Path, start: bytes) -> None:
    (tmp_path / "other").write_bytes(start)
    with pytest.raises(WireError) as refusal:
        Recording(tmp_path / "other")
    assert f"{tmp_path}/other" in str(refusal.value)
