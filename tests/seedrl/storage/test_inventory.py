"""What a run's folder of checkpoints holds, and what of it can go."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from seedrl.errors import CheckpointError
from seedrl.storage import checkpoints
from seedrl.storage.chosen import best_directory
from seedrl.storage.inventory import Entry, inventory, remove, superfluous


def save(directory: Path, step: int) -> Path:
    extra = {"replay": np.arange(3)}
    meta = {"env_steps": 10 * step}
    return checkpoints.save(directory, step, {}, meta, keep=3, extra=extra)


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    """Of the three newest checkpoints the last one is damaged."""
    for step in (1, 2, 3):
        save(tmp_path / "checkpoints", step)
    save(best_directory(tmp_path), 2)
    (tmp_path / "checkpoints" / f"{3:012d}" / "meta.json").write_text("{}")
    (tmp_path / "checkpoints" / "damaged-7-abc").mkdir()
    (tmp_path / "checkpoints" / ".tmp-000000000008-x").mkdir()
    (tmp_path / "checkpoints" / "of_a_user").mkdir()
    return tmp_path


def short(entries: list[Entry]) -> list[tuple[str, int, int | None, bool]]:
    return [(each.kind, each.step, each.env_steps, not each.problem) for each in entries]


def test_everything_is_listed_with_what_is_wrong_with_it(workdir: Path) -> None:
    found = inventory(workdir)
    assert short(found) == [
        ("best", 2, 20, True),
        ("checkpoint", 1, 10, True),
        ("checkpoint", 2, 20, True),
        ("checkpoint", 3, None, False),
        ("left over", -1, None, False),
        ("set aside", 7, None, False),
    ]
    assert "meta.json: expected" in found[3].problem
    assert found[1].num_bytes > 100


def test_the_newest_intact_ones_and_the_best_are_kept(workdir: Path) -> None:
    remove(superfluous(inventory(workdir), 1))
    assert short(inventory(workdir)) == [("best", 2, 20, True), ("checkpoint", 2, 20, True)]
    assert (workdir / "checkpoints" / "of_a_user").is_dir()


def test_what_was_replaced_is_older_than_what_has_replaced_it(tmp_path: Path) -> None:
    directory = tmp_path / "checkpoints"
    for step in (1, 2, 3):
        save(directory, step)
    # As a kill leaves it between the rename of a step's second save and the removal of its first.
    shutil.copytree(directory / f"{3:012d}", directory / f"{3:012d}.replaced")
    found = inventory(tmp_path)
    assert [entry.path.name[11:] for entry in found] == ["1", "2", "3.replaced", "3"]
    assert superfluous(found, 1) == found[:3]
    assert superfluous(found, 2) == [found[0], found[2]]  # two steps, not one twice


def test_nothing_goes_where_nothing_could_be_kept(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="which does not exist"):
        inventory(tmp_path)
    (save(tmp_path / "checkpoints", 1) / "meta.json").unlink()
    with pytest.raises(CheckpointError, match="expected an intact checkpoint to keep"):
        superfluous(inventory(tmp_path), 1)
