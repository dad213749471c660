from pathlib import Path

import numpy as np
import pytest

from seedrl.errors import CheckpointError
from seedrl.storage import checkpoints
from seedrl.storage.chosen import best_directory, choose


def _save_best(workdir: Path, step: int) -> None:
    checkpoints.save(best_directory(workdir), step, {"x": np.full(3, step)}, {}, keep=None)


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    for step in (5, 7, 9):
        arrays = {"x": np.full(3, step)}
        checkpoints.save(tmp_path / "checkpoints", step, arrays, {}, keep=2)
    for step in (8, 6, 3):
        _save_best(tmp_path, step)
    return tmp_path


def test_the_newest_that_of_a_step_or_the_best_may_be_meant(workdir: Path) -> None:
    found = [choose(workdir), choose(workdir, step=7), choose(workdir, step=3)]
    found.append(choose(workdir, is_best=True))
    assert [checkpoint.step for checkpoint in found] == [9, 7, 3, 3]


def test_one_best_checkpoint_is_kept_whatever_their_steps(workdir: Path) -> None:
    names = [path.name for path in best_directory(workdir).iterdir() if path.is_dir()]
    assert names == [f"{3:012d}"]
    _save_best(workdir, 3)
    assert choose(workdir, is_best=True).step == 3


def test_what_is_not_there_is_an_error_that_says_what_is(workdir: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="checkpoint of step 8 in .*, got 7, 9"):
        choose(workdir, step=8)
    with pytest.raises(CheckpointError, match="found none; train first"):
        choose(tmp_path / "other")
    with pytest.raises(CheckpointError, match="found none; no round of evaluation has ended"):
        choose(tmp_path / "other", is_best=True)
