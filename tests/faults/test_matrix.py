"""The fault matrix names every fault once and only tests that exist."""

from tests.faults.dying_thread import ENV_SERVER, LEARNER, found
from tests.faults.matrix import rows, unknown_tests


def test_every_fault_has_tests_that_exist_or_a_reason() -> None:
    matrix = rows()
    assert len(matrix) >= 40
    assert unknown_tests(test for row in matrix.values() for test in row.tests) == []
    for name, row in matrix.items():
        assert bool(row.tests) != bool(row.reason), name
        assert len(set(row.tests)) == len(row.tests), name


def test_every_thread_that_is_to_die_has_a_function_that_exists() -> None:
    assert all(callable(found(fate)[2]) for fate in (*LEARNER.values(), *ENV_SERVER.values()))
