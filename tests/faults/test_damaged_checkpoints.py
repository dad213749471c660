"""Whatever happens to the files of a checkpoint: noticed, the file named, the one before taken."""

import json
import logging
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seedrl import checkpoints, stored_arrays
from tests.faults.scale import scaled
from tests.seedrl.test_checkpoints import flip_a_bit

pytestmark = [pytest.mark.gate, pytest.mark.timeout(3600)]
TRIALS = 300


def _cut(path: Path, chooser: random.Random) -> None:
    path.write_bytes(path.read_bytes()[: chooser.randrange(path.stat().st_size)])


def _delete(path: Path, chooser: random.Random) -> None:
    path.unlink()


def _listed(path: Path, chooser: random.Random) -> None:
    """Other sums: of another shape, or that list something else."""
    root = next(parent for parent in path.parents if parent.name.isdigit())
    listed = root / checkpoints.SUMS
    content = json.loads(listed.read_text())
    name = chooser.choice(sorted(content["files"]))
    changes: list[Callable[[], Any]] = [
        lambda: "[" * 100_000,
        lambda: json.dumps(chooser.choice([None, [], {}, 3, "text", {"files": []}])),
        lambda: json.dumps({"files": {}}),
        lambda: json.dumps({**content, "files": {}}),
        lambda: json.dumps({**content, "files": {**content["files"], name: [0, "0" * 64]}}),
        lambda: json.dumps({**content, "files": {**content["files"], "../x": [0, "0" * 64]}}),
        lambda: json.dumps({**content, "more": 1}),
        lambda: json.dumps({**content, "sha256": "0" * 64}),
        lambda: json.dumps(
            {**content, "files": {n: v for n, v in content["files"].items() if n != name}}
        ),
    ]
    listed.write_text(chooser.choice(changes)())


def _save(directory: Path, step: int) -> Path:
    kernel = np.random.default_rng(step).normal(size=(64, 64)).astype(np.float32)
    state = {"params": {"kernel": kernel}, "updates": np.int32(step), "replay": np.arange(500)}
    return checkpoints.save(directory, step, state, {"env_steps": step}, keep=2)


def _taken(directory: Path) -> int:
    """The step of what is restored, after a look at every number of it."""
    found = checkpoints.latest(directory)
    assert found is not None
    zeros = np.zeros((64, 64), np.float32)
    wanted = {"params": {"kernel": zeros}, "updates": np.int32(0), "replay": np.zeros(500, int)}
    restored = stored_arrays.read_tree(found.path, wanted)
    expected = np.random.default_rng(found.step).normal(size=(64, 64)).astype(np.float32)
    np.testing.assert_array_equal(restored["params"]["kernel"], expected)
    np.testing.assert_array_equal(restored["replay"], np.arange(500))
    assert int(restored["updates"]) == found.step == found.meta["env_steps"]
    return found.step


def test_no_damage_is_silent_and_the_checkpoint_before_is_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    chooser = random.Random(0)
    original = tmp_path / "original"
    _save(original, 1)
    _save(original, 2)
    kinds = {"flipped": flip_a_bit, "cut": _cut, "deleted": _delete, "listed": _listed}
    caplog.set_level(logging.ERROR, logger="seedrl.checkpoints")
    for number in range(scaled(TRIALS)):
        directory = tmp_path / "copy"
        shutil.copytree(original, directory)
        newest = directory / f"{2:012d}"
        path = chooser.choice(
            [p for p in sorted(newest.rglob("*")) if p.is_file() and p.stat().st_size]
        )
        # Two flips for each of the others.
        kind = ["flipped", "cut", "flipped", "deleted", "flipped", "listed"][number % 6]
        kinds[kind](path, chooser)
        caplog.clear()
        taken = _taken(directory)
        message = " ".join(record.getMessage() for record in caplog.records)
        named = newest / checkpoints.SUMS if kind == "listed" else path
        assert taken == 1, (kind, path)
        assert f"{named}: " in message
        shutil.rmtree(directory)
