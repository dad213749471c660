"""Temporary folders of processes that were killed."""

import subprocess
import sys
from pathlib import Path

import pytest

from learner.processes import env_servers
from seedrl.programs.abandoned import holding, remove_abandoned

HOLDING = """
import os, signal, sys
from learner.processes.env_servers import private_folder
with private_folder() as folder:
    (folder / "config.json").write_text("{}")
    print(folder, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_folder_of_a_killed_process_goes_with_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    done = subprocess.run([sys.executable, "-c", HOLDING], capture_output=True, text=True)
    left = Path(done.stdout.strip())
    assert (left / "config.json").exists() and left.parent == tmp_path
    other = tmp_path / "seedrl-of-somebody-else"
    other.mkdir()
    with env_servers.private_folder() as first, env_servers.private_folder() as second:
        assert sorted(tmp_path.iterdir()) == sorted([first, other, second])
    assert list(tmp_path.iterdir()) == [other]


def test_the_folder_of_a_process_that_lives_stays(tmp_path: Path) -> None:
    with holding(tmp_path):
        remove_abandoned(tmp_path)
        assert tmp_path.exists()
    remove_abandoned(tmp_path)
    assert not tmp_path.exists()
    remove_abandoned(tmp_path)
