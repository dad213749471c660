"""One checkpoint of several hosts, which are threads here: whole, or not there."""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from learner.hosts.peers import Peers
from learner.learning.learn_step import LearnerState
from learner.saving import shared_save
from learner.saving.shared_save import SharedSave
from seedrl.errors import CheckpointError
from seedrl.exit_codes import ExitCode
from seedrl.storage import checkpoints, manifest
from tests.learner.hosts.linked import at_once, linked

KEY = np.zeros(2, np.uint32)


def state(value: float = 1.0) -> LearnerState:
    return LearnerState({"w": np.full(3, value)}, (), (), np.int32(7), (), KEY)


def shard(index: int) -> dict[str, np.ndarray]:
    return {"replay.mass": np.full((1, 4), index, np.float32)}


def save(saver: SharedSave, directory: Path, index: int, step: int = 7) -> Path:
    saver.require_equal(step, state())
    meta = {"env_steps": index, "replay_indices": [{"of": index}]}
    arrays = state()._asdict()
    return saver.save(directory, step, arrays, meta, keep=2, extra=shard(index))


def saved(savers: Sequence[SharedSave], directory: Path, step: int = 7) -> list[Any]:
    """What each host gives or raises."""

    def one(saver: SharedSave, index: int) -> Any:
        try:
            return save(saver, directory, index, step)
        except CheckpointError as error:
            return str(error)

    return at_once([functools.partial(one, saver, index) for index, saver in enumerate(savers)])


def savers(peers: Sequence[Peers]) -> list[SharedSave]:
    return [SharedSave(each) for each in peers]


@pytest.mark.parametrize("count", [2, 4])
def test_all_parts_make_one_intact_checkpoint(tmp_path: Path, count: int) -> None:
    with linked(count) as peers:
        paths = saved(savers(peers), tmp_path)
    assert paths == [tmp_path / f"{7:012d}"] * count
    assert manifest.damage(paths[0]) is None
    found = checkpoints.latest(tmp_path)
    assert found is not None
    assert found.meta["hosts"] == count
    assert found.meta["env_steps"] == 0  # the first host's
    assert found.meta["replay_indices"] == [{"of": index} for index in range(count)]
    everything = checkpoints.restore_extra(found)["replay.mass"]
    np.testing.assert_array_equal(everything[:, 0], np.arange(count))
    own = checkpoints.restore_extra(found, rows=slice(1, 2))["replay.mass"]
    np.testing.assert_array_equal(own, shard(1)["replay.mass"])


def test_a_part_that_cannot_be_written_fails_the_save_of_all_and_the_next_one_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise CheckpointError("disk full")

    with linked(3) as peers:
        hosts = savers(peers)
        with monkeypatch.context() as patch:
            patch.setattr(shared_save, "write_part", fail)
            texts = saved(hosts, tmp_path)
        assert all("host 1 of 3: disk full" in text for text in texts), texts
        assert checkpoints.latest(tmp_path) is None
        assert not list(tmp_path.glob(".tmp-*"))
        saved(hosts, tmp_path, step=8)
    assert checkpoints.latest(tmp_path) is not None


@pytest.mark.parametrize("when", ["_require_space", "_publish"])
def test_a_first_host_that_cannot_write_keeps_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with linked(2) as peers:
        hosts = savers(peers)
        with monkeypatch.context() as patch:
            patch.setattr(checkpoints, when, fail)
            texts = saved(hosts, tmp_path)
        assert all("No space left on device" in text for text in texts), texts
        saved(hosts, tmp_path, step=8)
    found = checkpoints.latest(tmp_path)
    assert found is not None
    assert found.step == 8


def test_parameters_that_differ_in_a_bit_end_every_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class EndedError(Exception):
        pass

    ended: list[tuple[str, ExitCode]] = []

    def leave(text: str, code: ExitCode) -> None:
        ended.append((text, code))
        raise EndedError

    monkeypatch.setattr(shared_save, "exit_now", leave)

    def one(saver: SharedSave, value: float) -> None:
        with pytest.raises(EndedError):
            saver.require_equal(7, state(value))

    with linked(2) as peers:
        values = (1.0, np.nextafter(1.0, 2.0))
        at_once([functools.partial(one, *pair) for pair in zip(savers(peers), values, strict=True)])
    assert [code for _, code in ended] == [ExitCode.HOSTS_DIFFER] * 2
    assert "expected the same parameters on all hosts, bit for bit" in ended[0][0]


def test_a_host_that_has_left_is_a_save_that_failed(tmp_path: Path) -> None:
    with linked(2) as peers:
        peers[1].leave("SIGTERM")
        with pytest.raises(CheckpointError, match="another host has left"):
            save(SharedSave(peers[0]), tmp_path, 0)
