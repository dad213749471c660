"""Where a learner serves that was told no address."""

import os
import tempfile
from pathlib import Path

import pytest

from learner.serving.access.private_socket import private_address
from seedrl.errors import ConfigError


@pytest.fixture
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # Those of pytest may be longer than a socket's path can be.
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setattr(tempfile, "gettempdir", lambda: folder)
        yield Path(folder)


def test_it_is_the_same_for_each_learner_of_a_run_and_nobody_else_can_look(parent: Path) -> None:
    one, again, other = (private_address(Path(name)) for name in ("a", "./a", "b"))
    assert one == again != other
    folder = Path(one.removeprefix("unix:")).parent
    assert folder.parent == parent
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_of_somebody_else_is_not_trusted(parent: Path) -> None:
    folder = parent / f"seedrl-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o755)
    with pytest.raises(ConfigError, match="to be a folder of this user's with mode 0700"):
        private_address(Path("a"))
    folder.rmdir()
    folder.symlink_to(parent)
    with pytest.raises(ConfigError, match="give --bind unix:/path in a folder of your own"):
        private_address(Path("a"))


def test_a_long_temporary_folder_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: "/" + "x" * 100)
    assert private_address(Path("a")).startswith(f"unix:/tmp/seedrl-{os.getuid()}/")
