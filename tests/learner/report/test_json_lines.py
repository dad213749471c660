"""Lines of a file that another process writes, each read once."""

import os
from pathlib import Path

import pytest

from learner.report import json_lines
from learner.report.json_lines import Gained, LineReader


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lines.jsonl"


def tail_of(path: Path) -> LineReader:
    return LineReader(path, longest_line_bytes=100)


def test_each_line_is_gained_once(path: Path) -> None:
    tail = tail_of(path)
    path.write_bytes(b"one\ntwo\n")
    assert tail.read() == Gained([b"one", b"two"])
    assert tail.read() == Gained([])
    with path.open("ab") as file:
        file.write(b"three\n")
    assert tail.read() == Gained([b"three"])


def test_half_a_line_is_left_until_it_is_whole(path: Path) -> None:
    tail = tail_of(path)
    path.write_bytes(b"one\ntw")
    assert tail.read() == Gained([b"one"])
    assert tail.read() == Gained([])
    path.write_bytes(b"one\ntwo\n")
    assert tail.read() == Gained([b"two"])


def test_a_file_that_was_cut_begins_again(path: Path) -> None:
    tail = tail_of(path)
    path.write_bytes(b"one\ntwo\n")
    tail.read()
    path.write_bytes(b"1\n")
    assert tail.read() == Gained([b"1"], is_another=True)
    assert tail.read() == Gained([])


def test_a_file_that_takes_its_place_begins_again(path: Path, tmp_path: Path) -> None:
    tail = tail_of(path)
    path.write_bytes(b"one\n")
    tail.read()
    (tmp_path / "new").write_bytes(b"other, and longer\n")
    (tmp_path / "new").replace(path)
    assert tail.read() == Gained([b"other, and longer"], is_another=True)


def test_a_file_is_read_in_pieces_and_long_lines_are_skipped(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_lines, "_PIECE_BYTES", 200)
    tail, long = tail_of(path), b"x" * 1000
    path.write_bytes(b"one\n" + long + b"\ntwo\n" + b"y" * 150 + b"\nthree\n")
    found = [tail.read().lines for _ in range(10)]
    assert found[0] == [b"one"]
    assert [line for lines in found for line in lines] == [b"one", b"two", b"three"]


@pytest.mark.parametrize("kind", ["fifo", "link", "folder"])
def test_only_regular_files_are_read(path: Path, tmp_path: Path, kind: str) -> None:
    (tmp_path / "secret").write_bytes(b"one\n")
    make = {
        "fifo": lambda: os.mkfifo(path),
        "link": lambda: path.symlink_to(tmp_path / "secret"),
        "folder": path.mkdir,
    }
    make[kind]()
    assert tail_of(path).read() == Gained([])
