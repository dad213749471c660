"""One checkpoint of several hosts, which are threads here: whole, or not there."""

import functools
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from learner.multihost import shared_save
from learner.multihost.peers import Peers
from learner.multihost.shared_save import SharedSave
from seedrl import checkpoints, stored_arrays
from seedrl.errors import CheckpointError
from seedrl.exit_codes import ExitCode
from tests.learner.multihost.linked import at_once, linked

STATE = {"params": {"w": np.ones(3)}}


def shard(index: int) -> dict[str, np.ndarray]:
    return {"replay.sampling_weight": np.full((1, 4), index, np.float32)}


def save(saver: SharedSave, directory: Path, index: int, step: int = 7) -> Path:
    saver.require_equal(step, lambda: "the same")
    meta = {"env_steps": index, "replay_indices": [{"of": index}]}
    return saver.save(directory, step, STATE, meta, keep=2, extra=shard(index))


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
    assert checkpoints.damage(paths[0]) is None
    found = checkpoints.latest(tmp_path)
    assert found is not None
    assert found.meta["hosts"] == count
    assert found.meta["env_steps"] == 0  # the first host's
    assert found.meta["replay_indices"] == [{"of": index} for index in range(count)]
    everything = stored_arrays.read_large(found.path / "extra")["replay.sampling_weight"]
    np.testing.assert_array_equal(everything[:, 0], np.arange(count))
    own = stored_arrays.read_large(found.path / "extra", rows=slice(1, 2))["replay.sampling_weight"]
    np.testing.assert_array_equal(own, shard(1)["replay.sampling_weight"])


def test_a_part_that_cannot_be_written_fails_the_save_of_all_and_the_next_one_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any, part: int = 0) -> dict[str, Any]:
        if part:
            raise ValueError("disk full")
        return checkpoints.write_arrays(*arguments)

    with linked(3) as peers:
        hosts = savers(peers)
        with monkeypatch.context() as patch:
            patch.setattr(shared_save, "write_arrays", fail)
            texts = saved(hosts, tmp_path)
        assert all(text.startswith("host 1 of 3: ") and "disk full" in text for text in texts), (
            texts
        )
        assert checkpoints.latest(tmp_path) is None
        saved(hosts, tmp_path, step=8)
    assert checkpoints.latest(tmp_path) is not None
    assert not (tmp_path / checkpoints.SAVING).exists()


@pytest.mark.parametrize("name", ["stored_arrays.write_tree", "_sync", "_publish"])
def test_a_first_host_that_cannot_write_keeps_no_other_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with linked(2) as peers:
        hosts = savers(peers)
        with monkeypatch.context() as patch:
            patch.setattr(f"seedrl.checkpoints.{name}", fail)
            texts = saved(hosts, tmp_path)
        assert all("No space left on device" in text for text in texts), texts
        assert all((each._given, each._gathered) == ({}, {}) for each in peers)
        # What another host was still writing meanwhile goes now.
        assert saved(hosts, tmp_path, step=8) == [tmp_path / f"{8:012d}"] * 2
        assert not (tmp_path / checkpoints.SAVING).exists()


@pytest.mark.parametrize("slow", [0, 1, 2])
def test_parameters_that_differ_in_a_bit_end_every_host_and_none_takes_that_for_a_loss(
    monkeypatch: pytest.MonkeyPatch, slow: int
) -> None:
    losses: list[str] = []
    codes: dict[int, ExitCode] = {}
    host_of_thread: dict[int, Peers] = {}

    def end(text: str, code: ExitCode) -> None:
        peers = host_of_thread[threading.get_ident()]
        codes[peers.topology.process_index] = code
        peers.close()
        raise SystemExit

    monkeypatch.setattr(shared_save, "exit_now", end)

    class Slow(Peers):
        def gather(self, tag: str, *arguments: Any) -> list[Any]:
            found = super().gather(tag, *arguments)
            threading.Event().wait(0.2)
            return found

    def one(peers: Peers) -> None:
        host_of_thread[threading.get_ident()] = peers
        with pytest.raises(SystemExit):
            SharedSave(peers).require_equal(7, lambda: f"{peers.topology.process_index // 2}")

    with linked(3, losses) as hosts:
        hosts[slow].__class__ = Slow
        at_once([functools.partial(one, peers) for peers in hosts])
    assert codes == dict.fromkeys(range(3), ExitCode.INTERNAL)
    assert losses == []
