"""The fault matrix names every fault once and only tests that exist."""

from tests.faults.matrix import ROWS, rows, unknown_tests


def test_every_fault_has_one_row_with_tests_that_exist_or_a_reason() -> None:
    matrix = rows()
    assert list(matrix) == list(ROWS)
    assert len(ROWS) == len(set(ROWS)) == 48
    assert unknown_tests(test for row in matrix.values() for test in row.tests) == []
    assert [row.name for row in matrix.values() if row.tests and row.reason] == []
    assert [row.name for row in matrix.values() if len(set(row.tests)) != len(row.tests)] == []
