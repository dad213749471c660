"""Checkpoints: whole or not there, verified before they are used, and data whoever wrote them."""

import contextlib
import errno
import itertools
import json
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

from seedrl import checkpoints, stored_arrays
from seedrl.checkpoints import DamagedError, best_directory, choose
from seedrl.errors import CheckpointError
from tests.learner.report.event_files import files_of_at_most


def _tree(fill: float = 1.0, width: int = 8) -> dict[str, Any]:
    params = {
        "lstm": {
            "kernel": np.full((4, width), fill, np.float32),
            "bias": jnp.full((width,), fill, jnp.bfloat16),
        }
    }
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-3))
    return {
        "params": params,
        "target": (),
        "optimizer": optimizer.init(params),
        "updates": np.int64(7),
        "is_done": np.bool_(True),
        "key": np.asarray([3, 5], np.uint32),
        "nothing": np.zeros((0, 3), np.float32),
    }


def _abstract(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), tree)


def _save(directory: Path, step: int, **more: Any) -> Path:
    return checkpoints.save(directory, step, {"x": np.full(3, step), **more}, {}, keep=2)


def _latest(directory: Path) -> checkpoints.Checkpoint:
    found = checkpoints.latest(directory)
    assert found is not None
    return found


def _value(directory: Path) -> int:
    """What `_save` put into the newest checkpoint, checked against its step."""
    found = _latest(directory)
    restored = stored_arrays.read_tree(found.path, {"x": np.zeros(3, int)})["x"]
    np.testing.assert_array_equal(restored, np.full(3, found.step))
    return found.step


def _names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def _saved(directory: Path, tree: Any) -> checkpoints.Checkpoint:
    checkpoints.save(directory, 1, tree, {}, keep=2)
    return _latest(directory)


# Arrays


def test_a_tree_comes_back_with_its_structure_dtypes_and_values(tmp_path: Path) -> None:
    saved = _tree(fill=1.5)
    path = checkpoints.save(tmp_path, 12, saved, {"config": "{}", "best": 3.5}, keep=2)
    assert path == tmp_path / "000000000012" and path.stat().st_mode & 0o777 == 0o700
    found = checkpoints.latest(tmp_path)
    assert found == checkpoints.Checkpoint(12, path, {"config": "{}", "best": 3.5})
    restored = stored_arrays.read_tree(found.path, _abstract(saved))
    assert isinstance(restored["optimizer"][1][0], optax.ScaleByAdamState)
    assert jax.tree.structure(restored) == jax.tree.structure(saved)
    for got, expected in zip(jax.tree.leaves(restored), jax.tree.leaves(saved), strict=True):
        assert isinstance(got, np.ndarray)
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, np.asarray(expected))


def test_a_manager_of_orbax_restores_the_parameters(tmp_path: Path) -> None:
    _save(tmp_path, 3)
    checkpoints.save(tmp_path, 4, _tree(fill=2.5), {}, keep=2)
    options = ocp.CheckpointManagerOptions(read_only=True, step_format_fixed_length=12)
    with ocp.CheckpointManager(tmp_path, options=options) as manager:
        assert manager.latest_step() == 4
        found = manager.restore(4, args=ocp.args.Composite(params=ocp.args.PyTreeRestore()))
    np.testing.assert_array_equal(found["params"]["params/lstm/kernel"], np.full((4, 8), 2.5))


def test_parameters_are_read_without_looking_at_the_rest(tmp_path: Path) -> None:
    found = _saved(tmp_path, _tree(fill=3.0))
    shutil.rmtree(found.path / "state")
    with pytest.raises(CheckpointError):
        checkpoints.latest(tmp_path)
    alone = checkpoints.latest(tmp_path, checkpoints.PARAMS)
    assert alone is not None
    kernel = stored_arrays.read_tree(alone.path, {"params": _tree()["params"]})["params"]["lstm"][
        "kernel"
    ]
    np.testing.assert_array_equal(kernel, np.full((4, 8), 3.0))
    (found.path / "params" / "_METADATA").write_text("{}")
    with pytest.raises(CheckpointError) as caught:
        checkpoints.latest(tmp_path, checkpoints.PARAMS)
    assert "_METADATA" in str(caught.value)


def test_a_tree_that_does_not_fit_is_refused_path_by_path(tmp_path: Path) -> None:
    found = _saved(tmp_path, _tree(width=8))
    wider = _tree(width=6)["params"]
    wider["lstm"]["scale"] = np.zeros((2,), np.int32)
    with pytest.raises(CheckpointError) as caught:
        stored_arrays.read_tree(found.path, {"params": wider})
    for name, expected, got in (
        ("bias", "bfloat16[6]", "bfloat16[8]"),
        ("kernel", "float32[4, 6]", "float32[4, 8]"),
        ("scale", "int32[2]", "nothing"),
    ):
        line = f"params/lstm/{name}: expected {expected}, checkpoint has {got}"
        assert line in str(caught.value)


def test_a_replay_comes_back_and_its_arrays_are_files_of_their_own(tmp_path: Path) -> None:
    replay = {
        "steps": {"a.reward": np.arange(6, dtype=np.float32).reshape(2, 3)},
        "half": np.asarray(jnp.arange(3, dtype=jnp.bfloat16)),
        "scalar": np.asarray(4, np.int8),
        "none": np.zeros((0, 2), np.int32),
    }
    _save(tmp_path, 1, replay=replay)
    found = _latest(tmp_path)
    # These names are part of the format.
    names = json.loads((found.path / "extra" / "names.json").read_text())
    assert set(names) == {"replay.half", "replay.scalar", "replay.steps.a.reward"}
    restored = stored_arrays.read_tree(found.path, {"replay": _abstract(replay)})["replay"]
    jax.tree.map(np.testing.assert_array_equal, restored, replay)
    assert jax.tree.map(str, _abstract(restored)) == jax.tree.map(str, _abstract(replay))
    with pytest.raises(CheckpointError) as caught:
        stored_arrays.read_tree(found.path, {"replay": {**_abstract(replay), "scalar": 1.0}})
    assert "replay.scalar: expected float64[], checkpoint has int8[]" in str(caught.value)


def test_an_array_without_elements_in_a_file_of_its_own_is_ignored(tmp_path: Path) -> None:
    _save(tmp_path, 1, replay=np.arange(3))
    found = _latest(tmp_path)
    np.save(found.path / "extra" / "001.npy", np.zeros((0, 2), np.int32))
    names = {"replay.x": ["000.npy", "int64"], "replay.none": ["001.npy", "int32"]}
    (found.path / "extra" / "names.json").write_text(json.dumps(names))
    replay = {"x": np.zeros(3, int), "none": np.zeros((0, 2), np.int32)}
    restored = stored_arrays.read_tree(found.path, {"replay": replay})["replay"]
    assert restored["x"].tolist() == [0, 1, 2] and restored["none"].shape == (0, 2)


# Which are there


def test_the_newest_are_kept_and_later_ones_moved_aside(tmp_path: Path) -> None:
    assert checkpoints.latest(tmp_path) is None
    assert checkpoints.latest(tmp_path / "absent") is None
    for step in (5, 10, 100, 200):
        _save(tmp_path, step)
    assert _names(tmp_path) == ["000000000100", "000000000200"]
    _save(tmp_path, 150)  # by a run that went on from an older one
    assert _value(tmp_path) == 150
    superseded, *rest = reversed(_names(tmp_path))
    assert superseded.startswith("superseded-200-")
    assert rest == ["000000000150", "000000000100"]


def test_the_newest_that_of_a_step_or_the_best_may_be_meant(tmp_path: Path) -> None:
    for step in (5, 7, 9):
        _save(tmp_path / "checkpoints", step)
    for step in (8, 6, 3):  # one is kept, whatever their steps
        checkpoints.save(best_directory(tmp_path), step, {"x": np.zeros(3)}, {}, keep=1)
    found = [choose(tmp_path), choose(tmp_path, step=7), choose(tmp_path, step=3)]
    found.append(choose(tmp_path, is_best=True))
    assert [checkpoint.step for checkpoint in found] == [9, 7, 3, 3]
    # Those of later steps are of another attempt.
    names = [path.name.rpartition("-")[0] for path in best_directory(tmp_path).iterdir()]
    assert sorted(names) == ["", "superseded-6", "superseded-8"]
    for folder, arguments, shown in (
        ("", {"step": 8}, "update 7, update 9, the best one, of update 3"),
        ("other", {}, "none"),
        ("other", {"is_best": True}, "none"),
    ):
        with pytest.raises(CheckpointError, match=f"found {shown}"):
            choose(tmp_path / folder, **arguments)


# Damage


def flip_a_bit(path: Path, generator: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
    path.write_bytes(bytes(content))


def _fifo(path: Path, generator: random.Random) -> None:
    path.unlink()
    os.mkfifo(path)


def _link(path: Path, generator: random.Random) -> None:
    path.unlink()
    path.symlink_to(sys.executable)


# Bits that flip, files that are cut or removed, many times: tests/faults/test_damaged_checkpoints.
@pytest.mark.parametrize("damage", [flip_a_bit, _fifo, _link])
def test_damage_to_any_file_is_reported_and_an_older_checkpoint_taken(
    tmp_path: Path, damage: Any, caplog: pytest.LogCaptureFixture
) -> None:
    generator = random.Random(0)
    _save(tmp_path, 1)
    newest = _save(tmp_path, 2, replay=np.arange(100))
    files = [path for path in newest.rglob("*") if path.is_file() and path.stat().st_size]
    assert len(files) > 6
    for file in files * (5 if damage is flip_a_bit else 1):
        intact = file.read_bytes()
        damage(file, generator)
        caplog.clear()
        found = _latest(tmp_path)
        assert found.step == 1, f"{damage.__name__} of {file} went unnoticed"
        (message,) = [record.getMessage() for record in caplog.records]
        assert str(file) in message and "expected" in message
        file.unlink(missing_ok=True)
        file.write_bytes(intact)
    assert _value(tmp_path) == 2


def _rewrite(path: Path, **changes: Any) -> None:
    """Other sums that fit themselves, as somebody who makes them up writes them."""
    content = json.loads((path / checkpoints.SUMS).read_text())
    files = content["files"] | changes.pop("files", {})
    content |= {"files": files, **changes}
    (path / checkpoints.SUMS).write_text(
        json.dumps({**content, "sha256": checkpoints._sum_of(content)})
    )


@pytest.mark.parametrize("is_best", [True, False])
@pytest.mark.parametrize("at", ["latest", "verified", "_stored", "_restored"])
def test_a_checkpoint_that_is_replaced_while_it_is_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str, is_best: bool
) -> None:
    """A save comes at any moment of a read: before this step of it, and after it."""
    directory = best_directory(tmp_path) if is_best else tmp_path / "checkpoints"
    module: Any = checkpoints if at in ("latest", "verified") else stored_arrays
    original, steps = getattr(module, at), [3, 2, 1]

    def save() -> None:
        step = steps.pop()
        checkpoints.save(directory, step, {"params": {"x": np.full(3, step)}}, {}, keep=1)

    def replacing(*args: Any, **kwargs: Any) -> Any:
        if steps:
            save()
        result = original(*args, **kwargs)
        if steps:
            save()
        return result

    save()
    monkeypatch.setattr(module, at, replacing)
    abstract = {"params": {"x": np.zeros(3, int)}}
    found = checkpoints.read(
        tmp_path,
        lambda found: (found.step, stored_arrays.read_tree(found.path, abstract)["params"]["x"]),
        is_best=is_best,
        parts=checkpoints.PARAMS,
    )
    np.testing.assert_array_equal(found[1], np.full(3, found[0]))
    assert not steps and found[0] == 3


@pytest.mark.parametrize(
    "changes",
    [
        *({"files": {name: [0, "0"]}} for name in ("../outside", "/etc/hostname")),
        *({"files": {"meta.json": entry}} for entry in ({}, [True, "0"])),
        {"step": "1"},
    ],
)
def test_sums_that_were_changed_are_damage(tmp_path: Path, changes: dict[str, Any]) -> None:
    path = _save(tmp_path, 1)
    _rewrite(path, **changes)
    with pytest.raises(DamagedError):
        checkpoints.verified(path)


@pytest.mark.parametrize("data", ["[" * 200_000, "null", "[]", "{}", "", '{"sha256": "0"}'])
def test_what_are_no_sums_is_damage_whatever_it_is(tmp_path: Path, data: str) -> None:
    path = _save(tmp_path, 1)
    (path / checkpoints.SUMS).write_text(data)
    with pytest.raises(DamagedError) as caught:
        checkpoints.verified(path)
    assert str(caught.value).startswith(f"{path / checkpoints.SUMS}: ")


def test_a_file_that_the_sums_do_not_list_is_damage(tmp_path: Path) -> None:
    path = _save(tmp_path, 1)
    (path / "state" / "more.npy").write_bytes(b"")
    with pytest.raises(DamagedError) as caught:
        checkpoints.verified(path)
    assert "state/more.npy: " in str(caught.value)


@pytest.mark.parametrize("move", [shutil.copytree, shutil.move])
def test_a_checkpoint_under_the_number_of_another_step_is_not_believed(
    tmp_path: Path, move: Any
) -> None:
    path = _save(tmp_path, 1)
    _save(tmp_path, 2)
    move(path, tmp_path / f"{9:012d}")
    assert _value(tmp_path) == 2
    with pytest.raises(CheckpointError):
        checkpoints.latest(tmp_path, step=9)


def test_it_is_an_error_if_no_checkpoint_is_intact(tmp_path: Path) -> None:
    for step in (1, 2):
        (_save(tmp_path, step) / checkpoints.SUMS).unlink()
    with pytest.raises(CheckpointError) as caught:
        checkpoints.latest(tmp_path)
    assert f"{2:012d}" in str(caught.value)


def test_a_checkpoint_of_another_format_is_refused_and_left_alone(tmp_path: Path) -> None:
    _save(tmp_path, 1)
    path = _save(tmp_path, 2)
    _rewrite(path, format=99)
    with pytest.raises(CheckpointError) as caught:
        checkpoints.latest(tmp_path)
    assert "99" in str(caught.value)
    assert _names(tmp_path) == ["000000000001", "000000000002"]


@pytest.mark.parametrize("name", ["", "state", "meta.json"])
def test_what_may_not_be_read_or_listed_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = _save(tmp_path, 1)

    def refusing(call: Callable[..., Any]) -> Callable[..., Any]:
        def refuse(place: Any, *arguments: Any, **options: Any) -> Any:
            if Path(place) == path / name:
                raise PermissionError(errno.EACCES, "Permission denied", str(place))
            return call(place, *arguments, **options)

        return refuse

    monkeypatch.setattr(os, "scandir", refusing(os.scandir))
    monkeypatch.setattr(checkpoints, "open_regular", refusing(checkpoints.open_regular))
    with pytest.raises(PermissionError):
        checkpoints.latest(tmp_path)


@pytest.mark.parametrize("name", ["checkpoints", "checkpoints/best"])
def test_a_link_in_place_of_a_folder_is_refused_before_it_is_written_to(
    tmp_path: Path, name: str
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    linked = tmp_path / name
    linked.parent.mkdir(exist_ok=True)
    linked.symlink_to(other)
    for directory in (linked, linked / "best"):
        with pytest.raises(CheckpointError) as caught:
            _save(directory, 1)
        assert str(linked) in str(caught.value)
    assert _names(other) == []


def test_records_are_as_long_as_a_large_replay_needs(tmp_path: Path) -> None:
    checkpoints.save(tmp_path, 1, {}, {"pages": "1" * 2**24}, keep=2)
    assert len(_latest(tmp_path).meta["pages"]) == 2**24


# Made up by somebody


@pytest.mark.parametrize("meta", ["[" * 200_000, "[1]", "{}"])
def test_meta_data_that_somebody_made_up_are_refused(tmp_path: Path, meta: str) -> None:
    path = _save(tmp_path, 1)
    (path / "meta.json").write_text(meta)
    _rewrite(path, files={checkpoints.META: checkpoints._entry(path / checkpoints.META)})
    with pytest.raises(CheckpointError) as caught:
        _latest(tmp_path).meta["config"]  # where nothing is wrong, this is missing
    assert "meta.json" in str(caught.value)


def test_arrays_larger_than_their_files_are_refused_before_they_are_read(
    tmp_path: Path,
) -> None:
    found = _saved(tmp_path, {"params": {"w": np.zeros(3, np.float32)}})
    shutil.rmtree(found.path / "params")
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=False, use_compression=False)
    with ocp.Checkpointer(handler) as checkpointer:
        arrays = {"params/w": np.zeros(3, np.float32)}
        checkpointer.save(found.path / "params", args=ocp.args.PyTreeSave(arrays))
    (described,) = found.path.rglob(".zarray")
    text = json.loads(described.read_text())
    for change in ({"shape": [10**15]}, {"chunks": [10**15]}):
        described.write_text(json.dumps({**text, **change}))
        with pytest.raises(CheckpointError) as caught:
            stored_arrays.read_tree(found.path, {"params": {"w": np.zeros(3, np.float32)}})
        assert "000,000,000" in str(caught.value) or str(10**15) in str(caught.value)


@pytest.mark.parametrize("names", ["[]", "[" * 200_000, '{"replay": ["../x.npy", "int32"]}'])
def test_large_arrays_that_somebody_made_up_are_refused(tmp_path: Path, names: str) -> None:
    _save(tmp_path, 1, replay=np.arange(3))
    found = _latest(tmp_path)
    (found.path / "extra" / "names.json").write_text(names)
    with pytest.raises(CheckpointError):
        stored_arrays.read_tree(found.path, {"replay": np.arange(3)})


# Disks that refuse, and deaths


@pytest.mark.parametrize(
    "call", ["pathlib.Path.mkdir", "os.fsync", "pathlib.Path.rename", "numpy.save"]
)
def test_a_full_disk_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device", "disk")

    _save(tmp_path, 1)
    with monkeypatch.context() as patch:
        patch.setattr(call, refuse)
        with pytest.raises(CheckpointError) as caught:
            _save(tmp_path, 2, replay=np.zeros(3))
    assert str(caught.value).count("No space left on device") == 1 and "\n" not in str(caught.value)
    assert _names(tmp_path) == ["000000000001"]
    _save(tmp_path, 2)
    assert _value(tmp_path) == 2


def test_a_file_size_limit_is_reported_as_one_line(tmp_path: Path) -> None:
    # The nearest thing to a full disk that orbax's own writes meet without a disk to fill.
    noise = np.random.default_rng(0).random(100_000)
    with files_of_at_most(100_000), pytest.raises(CheckpointError) as caught:
        checkpoints.save(tmp_path, 1, {"x": noise}, {}, keep=2)
    assert "File too large" in str(caught.value) and "\n" not in str(caught.value)
    assert _names(tmp_path) == []


class _KilledError(BaseException):
    pass


class _Killer:
    """Lets so many calls that change files through; at the next the process is as good as dead."""

    _CALLS = (
        (Path, "mkdir"),
        (Path, "rename"),
        (Path, "write_text"),
        (np, "save"),
        (os, "fsync"),
        (os, "rmdir"),
        (os, "unlink"),
        (tempfile, "mkdtemp"),
    )

    def __init__(self, patch: pytest.MonkeyPatch, calls: int):
        self.remaining = calls
        self.is_dead = False
        for owner, name in self._CALLS:
            patch.setattr(owner, name, self._counted(getattr(owner, name)))

    def _counted(self, original: Any) -> Any:
        def call(*arguments: Any, **keywords: Any) -> Any:
            self.remaining -= 1
            # The dead do not clean up either.
            self.is_dead = self.is_dead or self.remaining < 0
            if self.is_dead:
                raise _KilledError
            return original(*arguments, **keywords)

        return call


def test_death_before_any_change_of_files_leaves_two_checkpoints(tmp_path: Path) -> None:
    # With a replay alone orbax has nothing to do, and the test is fast.
    def save(step: int) -> None:
        replay = np.full(3, step)
        checkpoints.save(tmp_path, step, {"replay": replay}, {"saved": step}, keep=2)

    def saved_step() -> int:
        intact = {checkpoints.verified(path).step for _, path in checkpoints.listed(tmp_path)}
        assert len(intact) >= 2
        found = _latest(tmp_path)
        assert found.meta["saved"] == found.step
        restored = stored_arrays.read_tree(found.path, {"replay": np.zeros(3, int)})
        np.testing.assert_array_equal(restored["replay"], found.step)
        return found.step

    newest = 2
    for step in (1, newest):
        save(step)
    # A save of a new step, then one of the same step: that takes the replaced one aside.
    for increment in (1, 0):
        for calls in itertools.count():
            step = newest + increment
            with pytest.MonkeyPatch.context() as patch, contextlib.suppress(_KilledError):
                killer = _Killer(patch, calls)
                save(step)
            assert saved_step() in (newest, step)
            newest = saved_step()
            if not killer.is_dead:
                break
        assert calls > 10
