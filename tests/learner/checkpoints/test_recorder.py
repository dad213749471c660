"""The recorder: what batches leave behind, and what becomes of it when a run resumes."""

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from learner.checkpoints.recorder import Recorder
from learner.serving.batching import Pending
from learner.serving.core import Batch
from learner.serving.leases import Group, Lease
from seedrl.errors import CheckpointError
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec
from seedrl.types import StepType, TimeStep
from seedrl.wire.recording import Recording

SPEC = EnvSpec({"a": ArraySpec((2,), "float64")}, DiscreteSpec(99))
N = 4
STREAMS = (4, 5, 6, 7)


def _batch(
    number: int, groups: Sequence[list[int]], *, mark: int = 0, streams: Sequence[int] = STREAMS
) -> Batch:
    """Batch `number` with its rows in these groups; reward and observation name the slot."""
    pending, rows = [], []
    for slots in groups:
        marks = np.array(slots) + 10 * number + mark
        timestep = TimeStep(
            np.full(len(slots), StepType.MID, np.uint8),
            marks.astype(np.float32),
            np.ones(len(slots), np.float32),
            {"a": np.repeat(marks[:, None] / 7, 2, axis=1)},
        )
        index = np.array(slots, np.int32)
        group = Group(Lease(1, 1, "peer", 0), 0, index, index.astype(np.int64), "training", 0, b"")
        pending.append(Pending(group, 0, timestep, 0.0))
        rows.append(index)
    slots, positions = np.arange(N, dtype=np.int32), np.zeros(N, np.int32)
    return Batch(pending, slots, np.array(streams), positions, "training", 0.0, number, rows)


def _actions(number: int) -> np.ndarray:
    return np.arange(N, dtype=np.int32) + 10 * number


def _recorder(path: Path, position: int = 0, num_slots: int = N) -> Recorder:
    return Recorder(path, SPEC, num_slots=num_slots, position=position)


def _record(path: Path, numbers: Sequence[int], **batch: object) -> None:
    recorder = _recorder(path, position=numbers[0])
    for number in numbers:
        recorder.append(_batch(number, [[0, 1], [2, 3]], **batch), _actions(number))  # type: ignore[arg-type]
    recorder.sync()
    recorder.close()


def _rewards(path: Path) -> list[list[float]]:
    with Recording(path) as recording:
        assert recording.header.spec == SPEC
        read = [recording.read(number) for number in range(recording.num_records)]
    return [record.timestep.reward.tolist() for record in read if record is not None]


def test_records_have_the_slots_in_order_whatever_the_groups(tmp_path: Path) -> None:
    recorder = _recorder(tmp_path / "recording")
    for number, groups in enumerate([[[0, 1], [2, 3]], [[3], [0, 2], [1]]]):
        recorder.append(_batch(number, groups), _actions(number))
        with Recording(tmp_path / "recording") as recording:
            record = recording.read(number)
        assert record is not None
        marks = np.arange(N) + 10 * number
        assert record.timestep.reward.tolist() == marks.tolist()
        # In the dtype of the wire, not in the device's.
        assert record.timestep.observation["a"][:, 1].tolist() == (marks / 7).tolist()
        assert record.actions.tolist() == _actions(number).tolist()
    recorder.close()


def test_what_comes_again_after_a_resume_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "recording"
    _record(path, range(6))
    before = path.read_bytes()
    _record(path, range(2, 5))
    assert path.read_bytes() == before  # records 5 and up are still there to be played
    _record(path, range(5, 8))
    assert path.read_bytes().startswith(before)
    assert len(_rewards(path)) == 8
    # A new future replaces the old one from the first difference on.
    _record(path, [3])
    _record(path, [4], mark=1)
    assert _rewards(path) == [[10 * n + s + (n == 4) for s in range(N)] for n in range(5)]


def test_a_recording_ends_where_a_stream_is_cut(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "recording"
    _record(path, range(6))
    recorder = _recorder(path, position=4)
    for number in (4, 5):
        batch = _batch(number, [[0, 1, 2, 3]], streams=(4, 9, 6, 7))
        recorder.append(batch, _actions(number))
    recorder.close()
    assert len(_rewards(path)) == 4
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "ends before batch 4: an env server was lost" in caplog.text


@pytest.mark.parametrize(("num_records", "num_slots"), [(2, N), (3, N + 1), (None, N)])
def test_a_run_does_not_resume_beyond_its_recording(
    tmp_path: Path, num_records: int | None, num_slots: int
) -> None:
    path = tmp_path / "recording"
    if num_records is not None:
        _record(path, range(num_records))
    with pytest.raises(CheckpointError) as caught:
        _recorder(path, position=3, num_slots=num_slots)
    assert f"3 batches of {num_slots} slots" in str(caught.value)
