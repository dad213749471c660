"""The gate itself, on a tree of one module and its tests."""

from pathlib import Path

import pytest

from tests.mutation import gate
from tests.mutation.gate import BrokenHarnessError, Copy, Result, Verdict
from tests.mutation.mutant import Mutant

TESTS = ("tests/test_code.py",)
CODE = "def double(x):\n    return 2 * x\n\n\nunused = 1\n"
CHECKS = """
from code_under_test import double


def test_three_is_doubled():
    assert double(3) == 6
"""


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    root = tmp_path / "root"
    (root / "tests").mkdir(parents=True)
    (root / "code_under_test.py").write_text(CODE)
    (root / TESTS[0]).write_text(CHECKS)
    return Copy(root, tmp_path / "copy")


def tried(copy: Copy, old: str, new: str, timeout_seconds: float = 60.0) -> Result:
    mutant = Mutant("name", "code_under_test.py", old, new, "A bug.", "a promise")
    (result,) = gate.try_mutants([mutant], [copy], TESTS, timeout_seconds)
    return result


def test_a_mutant_is_killed_by_the_first_test_that_fails(copy: Copy) -> None:
    result = tried(copy, "2 * x", "3 * x")
    assert result.verdict is Verdict.KILLED
    assert result.killer == "tests/test_code.py::test_three_is_doubled"
    # The copy is as before: a bug that no test finds survives.
    assert (copy.tree / "code_under_test.py").read_text() == CODE
    assert tried(copy, "unused = 1", "unused = 2").verdict is Verdict.SURVIVED
    assert tried(copy, "2 * x", "__import__('os').abort()").verdict is Verdict.KILLED


def test_a_hang_is_not_a_kill(copy: Copy) -> None:
    hang = tried(copy, "2 * x", "__import__('time').sleep(3600)", timeout_seconds=1.0)
    assert hang.verdict is Verdict.TIMED_OUT


def test_tests_that_fail_without_a_mutant_are_refused(copy: Copy) -> None:
    (copy.tree / "code_under_test.py").write_text(CODE.replace("2 * x", "x"))
    with pytest.raises(BrokenHarnessError, match="test_three"):
        gate.check_unmutated([copy], TESTS, 60.0)
