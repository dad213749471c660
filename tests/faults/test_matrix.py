"""The fault matrix names every fault once and only tests that exist."""

from pathlib import Path

import pytest

from tests.faults.matrix import ROWS, rows, unknown_tests
from tests.faults.scale import VARIABLE, scaled

HERE = "tests/faults/test_matrix.py"


def test_every_fault_has_one_row_with_tests_that_exist_or_a_reason() -> None:
    matrix = rows()
    assert list(matrix) == list(ROWS)
    assert len(ROWS) == len(set(ROWS)) == 48
    assert unknown_tests(test for row in matrix.values() for test in row.tests) == []
    assert [row.name for row in matrix.values() if row.tests and row.reason] == []
    assert [row.name for row in matrix.values() if len(set(row.tests)) != len(row.tests)] == []


def test_what_is_no_test_is_found() -> None:
    there = f"{HERE}::test_what_is_no_test_is_found"
    absent = [f"{HERE}::test_absent", "tests/absent.py::test_x", f"{HERE}::HERE", HERE]
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


def test_a_scale_repeats_less_but_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert scaled(100) == 100
    monkeypatch.setenv(VARIABLE, "0.05")
    assert (scaled(100), scaled(3)) == (5, 1)
