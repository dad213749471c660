"""The address of a learner: a private socket by default, held by a lock."""

import os
import stat
import tempfile
from pathlib import Path

import pytest

from learner.serving.access import lock_address, private_address
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
    with pytest.raises(ConfigError):
        private_address(Path("a"))
    folder.rmdir()
    folder.symlink_to(parent)
    with pytest.raises(ConfigError):
        private_address(Path("a"))


def test_a_socket_path_is_private_and_held_until_it_is_released(tmp_path: Path) -> None:
    bind = f"unix:{tmp_path}/sockets/socket"
    lock = lock_address(bind)
    assert stat.S_IMODE((tmp_path / "sockets").stat().st_mode) == 0o700
    with pytest.raises(AddressInUseError) as caught:
        lock_address(bind)
    assert bind in str(caught.value)
    lock.close()
    lock_address(bind).close()


def test_a_socket_below_a_file_is_refused_by_field(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError) as caught:
        lock_address(f"unix:{tmp_path}/file/socket")
    assert "serving.bind" in str(caught.value)
