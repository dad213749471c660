"""Lines of a file that another process writes, each read once."""

import os
from pathlib import Path

import pytest

from learner.report import json_lines
from learner.report.json_lines import JsonLines, LineReader
from seedrl.errors import ConfigError
from seedrl.run_files import make_folder
from tests.learner.report.event_files import files_of_at_most


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lines.jsonl"


def tail_of(path: Path) -> LineReader:
    return LineReader(path, longest_line_bytes=100)


def test_each_whole_line_is_read_once(path: Path) -> None:
    tail = tail_of(path)
    path.write_bytes(b"one\ntwo\nthr")
    assert tail.read() == ([b"one", b"two"], False)
    assert tail.read() == ([], False)
    with path.open("ab") as file:
        file.write(b"ee\n")
    assert tail.read() == ([b"three"], False)


def test_a_file_that_was_cut_or_replaced_begins_again(path: Path, tmp_path: Path) -> None:
    tail = tail_of(path)
    path.write_bytes(b"one\ntwo\n")
    tail.read()
    path.write_bytes(b"1\n")
    assert tail.read() == ([b"1"], True)
    (tmp_path / "new").write_bytes(b"other, and longer\n")
    (tmp_path / "new").replace(path)
    assert tail.read() == ([b"other, and longer"], True)


def test_a_file_is_read_in_pieces_and_long_lines_are_skipped(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_lines, "_PIECE_BYTES", 200)
    tail, long = tail_of(path), b"x" * 1000
    path.write_bytes(b"one\n" + long + b"\ntwo\n" + b"y" * 150 + b"\nthree\n")
    found = [tail.read()[0] for _ in range(10)]
    assert found[0] == [b"one"]
    lines = [line for lines in found for line in lines if b"x" not in line]
    assert lines == [b"one", b"two", b"three"]


def test_only_regular_files_are_read(path: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"one\n")
    for make in (os.mkfifo, lambda path: path.symlink_to(tmp_path / "secret"), Path.mkdir):
        path.unlink(missing_ok=True)
        make(path)
        assert tail_of(path).read() == ([], False)


def test_no_link_is_followed_to_write(path: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("as before")
    for make in (os.mkfifo, lambda path: path.symlink_to(secret), Path.mkdir):
        make(path)
        with pytest.raises(ConfigError) as caught:
            JsonLines(path)
        assert str(path) in str(caught.value)
        path.rmdir() if path.is_dir() else path.unlink()
    path.symlink_to(secret)
    (tmp_path / f".{path.name}.new").symlink_to(secret)
    json_lines.replace_file(path, "new")
    assert path.read_text() == "new" and not path.is_symlink()
    for folder in (tmp_path / "folder", tmp_path / "folder" / "inner"):
        folder.symlink_to(tmp_path)
        with pytest.raises(ConfigError):
            make_folder(tmp_path / "folder")
        folder.unlink()
        folder.mkdir()
    assert secret.read_text() == "as before"


def test_a_line_that_the_disk_refuses_is_reported_with_the_file(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = JsonLines(path)
    with files_of_at_most(0):
        lines.append({"a": 1})
    assert str(path) in caplog.text
    lines.append({"b": 2})
    assert path.read_bytes().splitlines()[-1] == b'{"b": 2}'
    lines.close()


def test_a_disk_that_refuses_a_file_keeps_the_one_that_was_there(path: Path) -> None:
    path.write_text("as before")
    with files_of_at_most(3), pytest.raises(OSError) as caught:
        json_lines.replace_file(path, "longer than that")
    assert str(path) in str(caught.value)
    assert path.read_text() == "as before" and [*path.parent.iterdir()] == [path]
