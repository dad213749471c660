"""The address of a learner: a private socket by default, held by a lock."""

import os
import stat
import tempfile
from pathlib import Path

import pytest

from learner.serving.access import AddressLock, private_address
from seedrl.errors import AddressInUseError, ConfigError


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


def test_a_socket_path_is_held_until_it_is_released(tmp_path: Path) -> None:
    bind = f"unix:{tmp_path}/socket"
    lock = AddressLock(bind)
    with pytest.raises(AddressInUseError, match=f"cannot serve on {bind}: another learner serves"):
        AddressLock(bind)
    lock.release()
    AddressLock(bind).release()


def test_a_folder_made_for_a_socket_is_private(tmp_path: Path) -> None:
    AddressLock(f"unix:{tmp_path}/sockets/socket").release()
    assert stat.S_IMODE((tmp_path / "sockets").stat().st_mode) == 0o700


def test_a_socket_below_a_file_is_refused_by_field(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"serving.bind: expected a path where a socket can be"):
        AddressLock(f"unix:{tmp_path}/file/socket")
