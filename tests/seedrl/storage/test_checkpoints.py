import contextlib
import errno
import itertools
import json
import logging
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

from seedrl.errors import CheckpointError
from seedrl.storage import array_store, checkpoints, manifest
from seedrl.storage.writing import writing


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


def _save(directory: Path, step: int, **arguments: Any) -> Path:
    return checkpoints.save(directory, step, {"x": np.full(3, step)}, {}, keep=2, **arguments)


def _value(directory: Path) -> int:
    """What `_save` put into the newest checkpoint, checked against its step."""
    found = checkpoints.latest(directory)
    assert found is not None
    restored = checkpoints.restore(found, {"x": np.zeros(3, int)})["x"]
    np.testing.assert_array_equal(restored, np.full(3, found.step))
    return found.step


def _names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.name != ".lock")


@pytest.fixture(params=["one", "several"])
def long_arrays(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each dtype fills one of the arrays that are written, or several."""
    if request.param == "several":
        monkeypatch.setattr(array_store, "_MOST_ELEMENTS", 7)


@pytest.mark.usefixtures("long_arrays")
def test_a_tree_comes_back_with_its_structure_dtypes_and_values(tmp_path: Path) -> None:
    saved = _tree(fill=1.5)
    path = checkpoints.save(tmp_path, 12, saved, {"config": "{}", "best": 3.5}, keep=2)
    assert path == tmp_path / "000000000012"
    found = checkpoints.latest(tmp_path)
    assert found == checkpoints.Checkpoint(12, path, {"config": "{}", "best": 3.5})
    restored = checkpoints.restore(found, _abstract(saved))
    assert isinstance(restored["optimizer"][1][0], optax.ScaleByAdamState)
    assert jax.tree.structure(restored) == jax.tree.structure(saved)
    for got, expected in zip(jax.tree.leaves(restored), jax.tree.leaves(saved), strict=True):
        assert isinstance(got, np.ndarray)
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, np.asarray(expected))


def test_top_level_keys_can_be_left_out(tmp_path: Path) -> None:
    saved = _tree()
    found = _saved(tmp_path, saved)
    restored = checkpoints.restore(found, {"params": saved["params"]})
    np.testing.assert_array_equal(
        restored["params"]["lstm"]["kernel"], saved["params"]["lstm"]["kernel"]
    )


def test_what_was_written_array_by_array_is_read(tmp_path: Path) -> None:
    saved = _tree(fill=1.5)
    found = _saved(tmp_path, saved)
    shutil.rmtree(found.path / "state" / "joined")
    leaves, _ = jax.tree_util.tree_flatten_with_path(saved)
    arrays = {
        jax.tree_util.keystr(path, simple=True, separator="/"): np.asarray(leaf)
        for path, leaf in leaves
        if leaf.size
    }
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
        path = (found.path / "state" / "orbax").absolute()
        checkpointer.save(path, args=ocp.args.PyTreeSave(arrays))
    restored = checkpoints.restore(found, _abstract(saved))
    for got, expected in zip(jax.tree.leaves(restored), jax.tree.leaves(saved), strict=True):
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, np.asarray(expected))


def test_few_arrays_are_written_however_many_there_are(tmp_path: Path) -> None:
    found = _saved(tmp_path, {str(number): np.full(3, number) for number in range(50)})
    listed = json.loads((found.path / "state" / "joined" / "_METADATA").read_text())
    assert len(listed["tree_metadata"]) == 1


def _saved(directory: Path, tree: Any) -> checkpoints.Checkpoint:
    checkpoints.save(directory, 1, tree, {}, keep=2)
    found = checkpoints.latest(directory)
    assert found is not None
    return found


def test_a_tree_that_does_not_fit_is_refused_path_by_path(tmp_path: Path) -> None:
    found = _saved(tmp_path, _tree(width=8))
    wider = _tree(width=6)["params"]
    wider["lstm"]["scale"] = np.zeros((2,), np.int32)
    with pytest.raises(CheckpointError) as caught:
        checkpoints.restore(found, {"params": wider})
    assert str(caught.value) == (
        f"{found.path}/state does not fit: "
        "params/lstm/bias: expected bfloat16[6], checkpoint has bfloat16[8]; "
        "params/lstm/kernel: expected float32[4, 6], checkpoint has float32[4, 8]; "
        "params/lstm/scale: expected int32[2], checkpoint has nothing; "
        "start a new workdir or restore the config"
    )
    assert caught.value.exit_code == 74


@pytest.mark.parametrize(
    ("abstract", "message"),
    [
        ({"updates": np.int32(0)}, r"updates: expected int32\[\], checkpoint has int64\[\]"),
        ({"key": ()}, r"key: expected nothing, checkpoint has uint32\[2\]"),
        ({"target": np.zeros(2)}, r"target: expected float64\[2\], checkpoint has nothing"),
    ],
)
def test_another_dtype_or_presence_is_refused(tmp_path: Path, abstract: Any, message: str) -> None:
    found = _saved(tmp_path, _tree())
    with pytest.raises(CheckpointError, match=message):
        checkpoints.restore(found, abstract)


def test_extra_arrays_come_back_by_name(tmp_path: Path) -> None:
    extra = {
        "replay/steps.reward": np.arange(6, dtype=np.float32).reshape(2, 3),
        "half": np.asarray(jnp.arange(3, dtype=jnp.bfloat16)),
        "scalar": np.asarray(4, np.int8),
    }
    _save(tmp_path, 1, extra=extra)
    found = checkpoints.latest(tmp_path)
    assert found is not None
    restored = checkpoints.restore_extra(found)
    assert list(restored) == list(extra)
    for name, expected in extra.items():
        assert restored[name].dtype == expected.dtype
        np.testing.assert_array_equal(restored[name], expected)


def test_an_empty_or_absent_directory_has_no_checkpoint(tmp_path: Path) -> None:
    assert checkpoints.latest(tmp_path) is None
    assert checkpoints.latest(tmp_path / "absent") is None


def test_the_newest_are_kept(tmp_path: Path) -> None:
    for step in (5, 10, 15, 20):
        _save(tmp_path, step)
    assert _names(tmp_path) == ["000000000015", "000000000020"]
    assert _value(tmp_path) == 20


def test_fewer_than_two_cannot_be_kept(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="keep of at least 2, got 1"):
        checkpoints.save(tmp_path, 1, {}, {}, keep=1)


def test_a_step_can_be_saved_again(tmp_path: Path) -> None:
    checkpoints.save(tmp_path, 3, {"x": np.zeros(1)}, {"attempt": 1}, keep=2)
    checkpoints.save(tmp_path, 3, {"x": np.ones(1)}, {"attempt": 2}, keep=2)
    found = checkpoints.latest(tmp_path)
    assert found is not None
    assert found.meta == {"attempt": 2}
    assert _names(tmp_path) == ["000000000003"]


def test_a_step_is_found_by_its_number(tmp_path: Path) -> None:
    _save(tmp_path, 1)
    path = _save(tmp_path, 2)
    assert checkpoints.find(tmp_path, 1).step == 1
    with pytest.raises(CheckpointError, match="expected a checkpoint of step 3 .* got 1, 2"):
        checkpoints.find(tmp_path, 3)
    (path / "meta.json").unlink()
    with pytest.raises(CheckpointError, match=r"damaged checkpoint: .*meta\.json"):
        checkpoints.find(tmp_path, 2)


def test_later_steps_are_moved_aside_when_a_run_goes_on_from_an_earlier_one(
    tmp_path: Path,
) -> None:
    for step in (100, 200):
        _save(tmp_path, step)
    _save(tmp_path, 150)
    assert _value(tmp_path) == 150
    superseded, *rest = reversed(_names(tmp_path))
    assert superseded.startswith("superseded-200-")
    assert rest == ["000000000150", "000000000100"]


def test_sums_are_shown_from_where_they_differ(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    manifest.write(tmp_path)
    listed = tmp_path / manifest.NAME
    files = json.loads(listed.read_text())["files"]
    (size, digest) = files["file"]
    damaged = {"file": [size, digest[:-1] + ("0" if digest[-1] != "0" else "1")]}
    listed.write_text(json.dumps({"files": damaged}))
    assert manifest.damage(tmp_path) == (
        f"{tmp_path}/file: expected SHA-256 …{damaged['file'][1][48:]}, got …{digest[48:]}"
    )


def _flip_a_bit(path: Path, generator: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
    path.write_bytes(bytes(content))


def _truncate(path: Path, generator: random.Random) -> None:
    path.write_bytes(path.read_bytes()[: generator.randrange(path.stat().st_size)])


def _remove(path: Path, generator: random.Random) -> None:
    path.unlink()


@pytest.mark.parametrize("damage", [_flip_a_bit, _truncate, _remove])
def test_damage_to_any_file_is_reported_and_an_older_checkpoint_taken(
    tmp_path: Path, damage: Any, caplog: pytest.LogCaptureFixture
) -> None:
    generator = random.Random(0)
    _save(tmp_path, 1)
    newest = _save(tmp_path, 2, extra={"replay": np.arange(100)})
    files = [path for path in newest.rglob("*") if path.is_file() and path.stat().st_size]
    assert len(files) > 8
    for file in files * (10 if damage is _flip_a_bit else 1):
        intact = file.read_bytes()
        damage(file, generator)
        caplog.clear()
        with caplog.at_level(logging.ERROR, logger="seedrl.storage.checkpoints"):
            found = checkpoints.latest(tmp_path)
        assert found is not None and found.step == 1, f"{damage.__name__} of {file} went unnoticed"
        (message,) = [
            record.getMessage()
            for record in caplog.records
            if record.name == "seedrl.storage.checkpoints"
        ]
        assert f"{file}: expected" in message
        file.write_bytes(intact)
    assert _value(tmp_path) == 2
    damage(files[0], generator)
    assert _value(tmp_path) == 1


def test_the_report_names_the_file_and_both_values(tmp_path: Path) -> None:
    path = _save(tmp_path, 1) / "meta.json"
    size = path.stat().st_size
    path.write_bytes(b"short")
    assert manifest.damage(path.parent) == f"{path}: expected {size} bytes, got 5"


def _rewritten(path: Path, change: Any) -> str | None:
    """What is found wrong with a checkpoint whose manifest is changed so."""
    listed = path / manifest.NAME
    content = json.loads(listed.read_text())
    change(content)
    listed.write_text(json.dumps(content))
    return manifest.damage(path)


def _sealed(change: Any) -> Any:
    """The change, with a sum that fits it."""

    def changed(content: dict[str, Any]) -> None:
        change(content)
        content["sha256"] = manifest._sum(content["files"])

    return changed


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content["files"].clear(),
        lambda content: content["files"].update({"../outside": [0, "0"]}),
        lambda content: content["files"].update({"/etc/hostname": [0, "0"]}),
        lambda content: content["files"].update({"meta.json": [True, "0"]}),
        lambda content: content["files"].update({"meta.json": {}}),
        lambda content: content["files"].update({"manifest.json": [0, "0"]}),
    ],
)
@pytest.mark.parametrize("seal", [_sealed, lambda change: change])
def test_a_manifest_that_was_changed_is_what_is_named(
    tmp_path: Path, change: Any, seal: Any
) -> None:
    path = _save(tmp_path, 1)
    problem = _rewritten(path, seal(change))
    assert problem is not None
    assert problem.startswith(f"{path / manifest.NAME}: expected a list of files, got ValueError")


def test_a_digest_that_was_changed_in_the_manifest_is_damage_of_the_manifest(
    tmp_path: Path,
) -> None:
    path = _save(tmp_path, 1)

    def change(content: dict[str, Any]) -> None:
        content["files"]["meta.json"][1] = "0" * 64

    problem = _rewritten(path, change)
    assert problem is not None and problem.startswith(f"{path / manifest.NAME}: ")


@pytest.mark.parametrize("data", ["[" * 200_000, '{"files":' * 100_000, "null", "[]", "{}", ""])
def test_what_is_no_manifest_is_damage_whatever_it_is(tmp_path: Path, data: str) -> None:
    path = _save(tmp_path, 1)
    (path / manifest.NAME).write_text(data)
    problem = manifest.damage(path)
    assert problem is not None and problem.startswith(f"{path / manifest.NAME}: ")


def test_a_file_that_the_manifest_does_not_list_is_damage(tmp_path: Path) -> None:
    path = _save(tmp_path, 1)
    (path / "extra" / "more.npy").parent.mkdir(exist_ok=True)
    (path / "extra" / "more.npy").write_bytes(b"")
    assert manifest.damage(path) == (
        f"{path}/extra/more.npy: expected no such file, for manifest.json does not list it"
    )


@pytest.mark.parametrize(
    "meta", ["[" * 200_000, "[]", '{"format": 1, "step": "2", "meta": {}}', '{"format": 1}']
)
def test_what_somebody_made_up_is_refused_in_one_line(tmp_path: Path, meta: str) -> None:
    path = _save(tmp_path, 1)
    (path / "meta.json").write_text(meta)
    (path / manifest.NAME).unlink()
    manifest.write(path)
    with pytest.raises(CheckpointError, match="meta.json: expected what a checkpoint says"):
        checkpoints.latest(tmp_path)


def test_it_is_an_error_if_no_checkpoint_is_intact(tmp_path: Path) -> None:
    for step in (1, 2):
        (_save(tmp_path, step) / "manifest.json").unlink()
    with pytest.raises(CheckpointError, match="got 2 damaged; the newest: .*000000000002"):
        checkpoints.latest(tmp_path)


@pytest.mark.parametrize("call", ["mkdtemp", "fsync", "rename", "savez"])
def test_a_full_disk_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device", "disk")

    _save(tmp_path, 1)
    with monkeypatch.context() as patch:
        target = {
            "mkdtemp": "tempfile.mkdtemp",
            "fsync": "os.fsync",
            "rename": "pathlib.Path.rename",
            "savez": "numpy.save",
        }[call]
        patch.setattr(target, refuse)
        with pytest.raises(CheckpointError, match=r"0000000002: No space left on device \(disk\)"):
            _save(tmp_path, 2, extra={"replay": np.zeros(3)})
    assert _names(tmp_path) == ["000000000001"]
    _save(tmp_path, 2)
    assert _value(tmp_path) == 2


def test_too_little_free_space_is_seen_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type("Usage", (), {"free": 10})()
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    with pytest.raises(CheckpointError, match="expected 24 free bytes, got 10"):
        _save(tmp_path, 1)
    assert _names(tmp_path) == []


def test_what_cannot_be_json_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        checkpoints.save(tmp_path, 1, {"x": np.zeros(1)}, {"bad": object()}, keep=2)
    assert _names(tmp_path) == []


def test_leftovers_of_dead_processes_are_removed(tmp_path: Path) -> None:
    _save(tmp_path, 1)
    (tmp_path / ".tmp-2-abc").mkdir()
    (tmp_path / ".tmp-2-abc" / "meta.json").write_text("{}")
    assert _value(tmp_path) == 1
    assert _names(tmp_path) == [".tmp-2-abc", "000000000001"]  # who reads does not write
    assert checkpoints.take_over(tmp_path) is not None
    assert _names(tmp_path) == ["000000000001"]


def test_a_damaged_checkpoint_is_not_one_of_those_kept_when_a_run_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _save(tmp_path, 1)
    damaged = _save(tmp_path, 2)
    (damaged / "meta.json").write_text("short")
    with caplog.at_level(logging.ERROR, logger="seedrl.storage.checkpoints"):
        found = checkpoints.take_over(tmp_path)
    assert found is not None and found.step == 1
    (message,) = [record.getMessage() for record in caplog.records]
    _save(tmp_path, 3)
    # Two intact ones, the older of which is there if the newer is damaged too; and the damaged one.
    *intact, aside = _names(tmp_path)
    assert intact == ["000000000001", "000000000003"]
    assert aside.startswith("damaged-2-")
    assert str(damaged) in message and str(tmp_path / aside) in message
    assert (tmp_path / aside / "meta.json").read_text() == "short"
    for step in (4, 5):
        _save(tmp_path, step)
    assert _names(tmp_path) == ["000000000004", "000000000005", aside]


def test_nothing_is_set_aside_while_nothing_is_intact(tmp_path: Path) -> None:
    for step in (1, 2):
        (_save(tmp_path, step) / "meta.json").unlink()
    with pytest.raises(CheckpointError, match="got 2 damaged"):
        checkpoints.take_over(tmp_path)
    assert _names(tmp_path) == ["000000000001", "000000000002"]


def test_what_is_only_read_stays_where_it_is(tmp_path: Path) -> None:
    _save(tmp_path, 1)
    (_save(tmp_path, 2) / "meta.json").unlink()
    assert _value(tmp_path) == 1
    assert _names(tmp_path) == ["000000000001", "000000000002"]


def test_a_damaged_checkpoint_cannot_be_set_aside_while_another_process_saves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "_LOCK_SECONDS", 0.0)
    _save(tmp_path, 1)
    (_save(tmp_path, 2) / "meta.json").unlink()
    with (
        writing(tmp_path, timeout_seconds=0.0),
        pytest.raises(CheckpointError, match="another process is saving"),
    ):
        checkpoints.take_over(tmp_path)


def test_another_format_is_refused(tmp_path: Path) -> None:
    path = _save(tmp_path, 1)
    content = json.loads((path / "meta.json").read_text())
    (path / "meta.json").write_text(json.dumps({**content, "format": 99}))
    manifest_path = path / "manifest.json"
    manifest_path.unlink()
    manifest.write(path)
    with pytest.raises(CheckpointError, match="expected checkpoint format 1 or 2 .* got 99"):
        checkpoints.latest(tmp_path)


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


def test_death_before_any_change_of_files_leaves_a_checkpoint(tmp_path: Path) -> None:
    # Without arrays orbax has nothing to do, and the test is fast.
    def save(step: int) -> None:
        extra = {"replay": np.full(3, step)}
        checkpoints.save(tmp_path, step, {}, {"saved": step}, keep=2, extra=extra)

    def saved_step() -> int:
        found = checkpoints.latest(tmp_path)
        assert found is not None
        assert found.meta["saved"] == found.step
        np.testing.assert_array_equal(checkpoints.restore_extra(found)["replay"], found.step)
        return found.step

    newest = 1
    save(newest)
    # A save of a new step, then one of the same step: that takes the replaced one aside.
    for increment in (1, 0):
        for calls in itertools.count():
            step = newest + increment
            with pytest.MonkeyPatch.context() as patch, contextlib.suppress(_KilledError):
                killer = _Killer(patch, calls)
                save(step)
            assert saved_step() in (newest, step)
            newest = saved_step()
            assert checkpoints.take_over(tmp_path) is not None
            assert not [name for name in _names(tmp_path) if name.startswith(".tmp-")]
            if not killer.is_dead:
                break
        assert calls > 10


_SAVES = """
import sys
from pathlib import Path
import numpy as np
from seedrl.storage import checkpoints

step = 0
while True:
    step += 1
    checkpoints.save(Path(sys.argv[1]), step, {"x": np.full(3, step)}, {}, keep=2)
    print(step, flush=True)
"""


@pytest.mark.parametrize("seed", range(2))
def test_sigkill_at_a_random_moment_loses_at_most_the_save_under_way(
    tmp_path: Path, seed: int
) -> None:
    generator = random.Random(seed)
    command = [sys.executable, "-c", _SAVES, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(generator.randint(2, 5)):
            saved = int(process.stdout.readline())
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(generator.uniform(0.0, 0.05))
        process.kill()
        rest = process.stdout.read().split()
    saved = int(rest[-1]) if rest else saved
    assert _value(tmp_path) in (saved, saved + 1)
    assert checkpoints.take_over(tmp_path) is not None
    assert not [name for name in _names(tmp_path) if name.startswith(".tmp-")]


def test_a_file_size_limit_is_reported_as_one_line(tmp_path: Path) -> None:
    # The nearest thing to a full disk that orbax's own writes meet without a disk to fill.
    noise = np.random.default_rng(0).random(100_000)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(CheckpointError) as caught:
            checkpoints.save(tmp_path, 1, {"x": noise}, {}, keep=2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    line = str(caught.value)
    assert line.startswith(f"cannot save checkpoint {tmp_path}/000000000001: ")
    assert "File too large" in line
    assert "\n" not in line
    assert _names(tmp_path) == []


def test_two_processes_do_not_save_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "_LOCK_SECONDS", 0.0)
    inner: list[str] = []

    def save_inside(*_: object) -> None:
        try:
            _save(tmp_path, 2)
        except CheckpointError as error:
            inner.append(str(error))

    with monkeypatch.context() as patch:
        patch.setattr(manifest, "write", save_inside)
        checkpoints.save(tmp_path, 1, {}, {}, keep=2)
    assert inner == [f"another process is saving to {tmp_path}"]
