"""Sampled sequences of a real, small replay, written when a file asks for them."""

import base64
import json
import threading
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from learner.learning.look import Look
from learner.reporting.status import ASK, SEQUENCES
from learner.saving.sequences import SequencesOnRequest, Source, described, leaves
from seedrl.agents.window import WindowSpec
from seedrl.types import StoredStep, TimeStep
from tests.patience import wait_until

WINDOW = WindowSpec(burn_in=1, unroll=2, bootstrap=0, stride=1)


def look(num_sequences: int) -> Look:
    """Sequences whose n-th has observations n * 10 + t."""
    n, t = np.meshgrid(np.arange(num_sequences), np.arange(3))
    observation = {"a": (n * 10 + t).astype(np.uint8)[..., None], "b": (n > 0, n)}
    timestep = TimeStep(np.full(n.shape, 1, np.uint8), n * 0.5, n * 0 + 1.0, observation)
    steps = StoredStep(timestep, t, n, np.stack([n, t], axis=-1).astype(np.float32))
    about = {"weight": np.arange(num_sequences, dtype=np.float32)}
    return Look(steps, about, [7 + 5 * number for number in range(num_sequences)], 100)


def source(**changed: Any) -> Source:
    given = Source(look, lambda: {7: "host:1"}, WINDOW, step_bytes=4, num_slots=5)
    return given._replace(**changed)


def answered(folder: Path, given: Source) -> dict[str, Any]:
    (folder / ASK).touch()
    SequencesOnRequest(folder).answer(lambda: given)
    wait_until((folder / SEQUENCES).exists)
    assert not (folder / ASK).exists()
    found: dict[str, Any] = json.loads((folder / SEQUENCES).read_text())
    return found


def test_nothing_is_sampled_unless_it_is_asked_for(tmp_path: Path) -> None:
    def unwanted() -> Source:
        raise AssertionError("nobody has asked")

    SequencesOnRequest(tmp_path).answer(unwanted)
    assert list(tmp_path.iterdir()) == []


def test_who_asks_gets_sequences_and_where_they_came_from(tmp_path: Path) -> None:
    found = answered(tmp_path, source())
    assert (found["updates"], found["burn_in"], found["unroll"]) == (100, 1, 2)
    assert [sequence["slot"] for sequence in found["sequences"]] == [2, 2, 2, 2]
    assert [sequence["env_server"] for sequence in found["sequences"]] == ["host:1", "", "", ""]
    third = found["sequences"][2]
    assert third["action"] == [0, 1, 2] and third["reward"] == [1.0] * 3
    assert third["extras"] == {"": [[2.0, 0.0], [2.0, 1.0], [2.0, 2.0]]}
    assert third["about"] == {"weight": 2.0}
    packed = third["observation"]["a"]
    assert (packed["dtype"], packed["shape"]) == ("uint8", [3, 1])
    assert base64.b64decode(packed["data"]) == bytes([20, 21, 22])


def test_a_stream_that_is_not_known_has_no_origin(tmp_path: Path) -> None:
    unknown = source(look=lambda num: look(1)._replace(streams=[-1]))
    (only,) = answered(tmp_path, unknown)["sequences"]
    assert (only["slot"], only["env_server"]) == (None, "")


def test_large_observations_are_sampled_one_sequence_at_a_time(tmp_path: Path) -> None:
    assert len(answered(tmp_path, source(step_bytes=2**22))["sequences"]) == 1


def test_why_there_are_no_sequences_is_said(tmp_path: Path) -> None:
    def cannot(num: int) -> Look:
        raise ValueError("this replay cannot")

    assert answered(tmp_path, source(look=cannot))["problem"] == "this replay cannot"
    (tmp_path / SEQUENCES).unlink()
    early = answered(tmp_path, source(look=lambda num: None))
    assert early["problem"] == "replay holds no sequence yet"


def test_a_defect_is_logged_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def broken(num: int) -> Look:
        raise KeyError("slot")

    assert answered(tmp_path, source(look=broken))["problem"].startswith("sampling failed")
    assert "KeyError" in caplog.text


def test_a_second_request_waits_until_the_first_is_answered(tmp_path: Path) -> None:
    is_free = threading.Event()

    def slow(num: int) -> Look:
        assert is_free.wait(60)
        return look(1)

    on_request = SequencesOnRequest(tmp_path)
    (tmp_path / ASK).touch()
    on_request.answer(lambda: source(look=slow))
    (tmp_path / ASK).touch()
    on_request.answer(source)
    assert (tmp_path / ASK).exists()
    is_free.set()
    wait_until((tmp_path / SEQUENCES).exists)


class Pair(NamedTuple):
    left: Any
    right: Any


def test_arrays_of_a_tree_are_named_by_the_way_to_them() -> None:
    one = np.zeros(1)
    assert [name for name, _ in leaves(one)] == [""]
    tree = {"x": Pair(one, (one, ())), "y": one}
    assert [name for name, _ in leaves(tree)] == ["x.left", "x.right.0", "y"]


def test_bytes_are_those_of_a_little_endian_machine() -> None:
    steps = look(1).steps
    swapped = steps._replace(
        timestep=steps.timestep._replace(observation=np.array([[1.5], [2.5], [3.5]], ">f4"))
    )
    packed = described(look(1)._replace(steps=swapped), 0)["observation"][""]
    assert np.frombuffer(base64.b64decode(packed["data"]), "<f4").tolist() == [1.5, 2.5, 3.5]
