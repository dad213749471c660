"""Which of two modules of one name is imported: that beside the configuration, everywhere."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from seedrl import config_modules

SOURCE = "import twin_of_two, only_here; print(twin_of_two.__file__); print(only_here.__file__)"


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The folder of a configuration, and the current one: both have a module of one name."""
    beside, current = tmp_path / "beside", tmp_path / "current"
    for folder in (beside, current):
        folder.mkdir()
        (folder / "twin_of_two.py").touch()
    (current / "only_here.py").touch()
    monkeypatch.chdir(current)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(config_modules, "_folders", [])
    return beside, current


def test_a_configs_folder_comes_before_the_current_one_in_children(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    beside, current = folders
    monkeypatch.setenv("PYTHONPATH", str(beside.parent))
    config_modules.import_from(beside)
    path = config_modules.path_for_children()
    assert path == os.pathsep.join(map(str, (beside, current, beside.parent)))
    found = subprocess.run(
        [sys.executable, "-P", "-S", "-c", SOURCE],
        env={"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.split() == [f"{beside}/twin_of_two.py", f"{current}/only_here.py"]


def test_a_folder_that_is_on_the_path_already_still_comes_first(
    folders: tuple[Path, Path],
) -> None:
    beside, current = folders
    # As in a learner: Python has put the current folder there, and then PYTHONPATH.
    sys.path[:] = [str(current), str(beside), "others"]
    config_modules.import_from(beside)
    assert sys.path == [str(beside), str(current), "others"]
    config_modules.import_from(current)  # that of a configuration which the first one loads
    assert sys.path == [str(beside), str(current), "others"]


def test_a_module_that_is_passed_over_is_named(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    beside, _ = folders
    assert config_modules.passed_over(["twin_of_two"]) == []
    config_modules.import_from(beside)
    assert config_modules.passed_over(["twin_of_two.part", "only_here"]) == ["twin_of_two"]
    assert config_modules.passed_over([]) == []
    monkeypatch.setitem(sys.modules, "twin_of_two", os)
    assert config_modules.passed_over([]) == ["twin_of_two"]
    monkeypatch.chdir(beside)
    assert config_modules.passed_over([]) == []
