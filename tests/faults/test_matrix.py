"""The fault matrix names every fault once and only tests that exist; its figures are kept."""

from pathlib import Path

import pytest

from tests.faults import page
from tests.faults.matrix import ROWS, Row, rows, unknown_tests
from tests.faults.records import Record, append, last, read, without_record
from tests.faults.running import Finished, finished_tests
from tests.faults.scale import VARIABLE, scaled

HERE = "tests/faults/test_matrix.py"


def record(row: str, outcome: str = "passed", commit: str = "abc", **figures: float) -> Record:
    return Record(row, outcome, figures, 1.5, commit, "2026-01-02", "a machine")  # type: ignore[arg-type]


def test_every_fault_has_one_row_with_tests_that_exist_or_a_reason() -> None:
    matrix = rows()
    assert list(matrix) == list(ROWS)
    assert len(ROWS) == len(set(ROWS)) == 48
    assert unknown_tests(test for row in matrix.values() for test in row.tests) == []
    assert [row.name for row in matrix.values() if row.tests and row.reason] == []
    assert [row.name for row in matrix.values() if len(set(row.tests)) != len(row.tests)] == []


def test_what_is_no_test_is_found() -> None:
    there = f"{HERE}::test_what_is_no_test_is_found"
    absent = [f"{HERE}::test_absent", "tests/absent.py::test_x", f"{HERE}::record", HERE]
    assert unknown_tests(iter([there, f"{there}[1]", *absent])) == sorted(absent)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[E1]\nfault = 'a'\npromise = 'b'\n", "missing or unknown rows: E10, E11"),
        ("[E1]\nfault = 'a'\npromise = 'b'\n[E1]\nfault = 'a'\n", "Cannot declare"),
        ("".join(f"[{name}]\nfault = 'a'\n" for name in ROWS), "row E1: expected"),
        (
            "".join(f"[{name}]\nfault = 'a'\npromise = 'b'\ntest = []\n" for name in ROWS),
            "row E1: expected",
        ),
    ],
)
def test_what_is_no_matrix_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "matrix.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        rows(path)


def test_records_are_kept_and_say_what_is_to_be_run(tmp_path: Path) -> None:
    path = tmp_path / "faults.jsonl"
    assert read(path) == []
    kept = [record("E1", seconds=0.25), record("E2", "failed"), record("E1", commit="def")]
    for each in kept:
        append(each, path)
    assert read(path) == kept
    assert last(read(path)) == {"E1": kept[2], "E2": kept[1]}
    assert without_record(["E1", "E2", "E3"], read(path), "abc") == ["E2", "E3"]


@pytest.mark.parametrize(
    ("cases", "expected"),
    [
        ("", Finished("failed", {})),
        ("<testcase name='a'/>", Finished("passed", {})),
        ("<testcase name='a'/><testcase name='b'><skipped/></testcase>", Finished("failed", {})),
        ("<testcase name='a'><failure/></testcase>", Finished("failed", {})),
        (
            "<testcase><properties><property name='seconds' value='0.25'/>"
            "<property name='kills' value='3'/></properties></testcase>"
            "<testcase><properties><property name='kills' value='none'/></properties></testcase>",
            Finished("passed", {"seconds": 0.25, "kills": 3, "kills_2": "none"}),
        ),
    ],
)
def test_figures_are_those_that_tests_hand_in(
    tmp_path: Path, cases: str, expected: Finished
) -> None:
    path = tmp_path / "report.xml"
    path.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    assert finished_tests(path) == expected


def test_a_line_of_the_page_says_what_is_shown_and_what_is_not() -> None:
    row = Row("E1", "a fault", "a promise", ("tests/a/test_b.py::test_c",), lacks="a figure")
    tests = "`a/test_b::test_c`<br>**lacks**: a figure"
    assert page.line(row, None) == ("E1", "a fault", "a promise", tests, "-", "-")
    shown = page.line(row, record("E1", "failed", "0123456789", seconds=0.123456, kills=3))
    assert shown[4:] == ("**failed** seconds 0.1235, kills 3", "2026-01-02, 0123456")
    assert page.line(row._replace(tests=(), lacks=""), None)[3] == "**missing**"
    assert page.line(row._replace(tests=(), lacks="", reason="no clock"), None)[3] == (
        "not automated: no clock"
    )


def test_a_scale_repeats_less_but_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert scaled(100) == 100
    monkeypatch.setenv(VARIABLE, "0.05")
    assert (scaled(100), scaled(3)) == (5, 1)
