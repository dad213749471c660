"""The address of a learner: a private socket by default, held by a lock."""

import os
import socket
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


def test_a_long_temporary_folder_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: "/" + "x" * 100)
    assert private_address(Path("a")).startswith(f"unix:/tmp/seedrl-{os.getuid()}/")


def test_a_socket_path_is_held_until_it_is_released(tmp_path: Path) -> None:
    bind = f"unix:{tmp_path}/socket"
    lock = AddressLock(bind)
    with pytest.raises(AddressInUseError, match=f"cannot serve on {bind}: another learner serves"):
        AddressLock(bind)
    lock.release()
    AddressLock(bind).release()


def test_releasing_twice_does_not_close_another_file(tmp_path: Path) -> None:
    lock = AddressLock(f"unix:{tmp_path}/socket")
    lock.release()
    with (tmp_path / "other").open("w") as other:  # takes the descriptor that was freed
        lock.release()
        other.write("still open")
    assert (tmp_path / "other").read_text() == "still open"


def test_two_socket_paths_do_not_exclude_each_other(tmp_path: Path) -> None:
    locks = [AddressLock(f"unix:{tmp_path}/{name}") for name in ("a", "b")]
    for lock in locks:
        lock.release()


def test_a_folder_made_for_a_socket_is_private(tmp_path: Path) -> None:
    AddressLock(f"unix:{tmp_path}/sockets/socket").release()
    assert stat.S_IMODE((tmp_path / "sockets").stat().st_mode) == 0o700


def test_a_port_is_its_own_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    locks = [AddressLock("127.0.0.1:8686") for _ in range(2)]
    for lock in locks:
        lock.release()
    assert list(tmp_path.iterdir()) == []


def test_a_family_that_the_kernel_does_not_have_and_a_host_that_is_no_name_are_left_to_grpc(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    AddressLock("a..b:8686")
    found = [(9999, socket.SOCK_STREAM, 0, "", ("::1", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    AddressLock("localhost:8686")


def test_a_socket_below_a_file_is_refused_by_field(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"serving.bind: expected a path where a socket can be"):
        AddressLock(f"unix:{tmp_path}/file/socket")
