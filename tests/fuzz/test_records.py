"""Records of the search are kept, say what is missing, and are shown."""

from pathlib import Path

from tests.fuzz import page
from tests.fuzz.records import FuzzRecord, append, num_inputs, read


def _record(target: str, inputs: int, commit: str = "abcdef0123", crashes: int = 0) -> FuzzRecord:
    return FuzzRecord(
        target, "atheris", inputs, inputs // 10, 3, crashes, 90, 1.5, commit, "2026-01-02", "it"
    )


def test_records_are_kept_and_say_how_much_was_given_at_a_commit(tmp_path: Path) -> None:
    path = tmp_path / "fuzz.jsonl"
    assert read(path) == []
    kept = [
        _record("steps", 100),
        _record("frames", 7),
        _record("steps", 20, "abcdef0123-dirty"),
        _record("steps", 3, "fedcba"),
    ]
    for each in kept:
        append(each, path)
    assert read(path) == kept
    assert num_inputs("steps", "abcdef0123-dirty", read(path)) == 120
    assert num_inputs("actions", "abcdef0123", read(path)) == 0


def test_the_page_adds_up_each_reader_and_all() -> None:
    records = [_record("steps", 1000, crashes=1), _record("steps", 2000), _record("frames", 50)]
    shown = {line[0]: line[1:] for line in page.lines(records)}
    assert list(shown) == ["steps", "frames", "all"]
    assert shown["steps"] == ("3,000", "1", "2,000", "200", "90", "2026-01-02, abcdef0")
    assert shown["all"][:3] == ("3,050", "1", "2,050")
