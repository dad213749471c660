"""The gate itself, on a tree of one module and its test."""

from pathlib import Path

import pytest

from tests.mutation import gate
from tests.mutation.gate import BrokenHarnessError, Copy, Verdict
from tests.mutation.mutant import Mutant

TESTS = ("tests/test_code.py",)
CODE = "def double(x):\n    return 2 * x\n\n\nunused = 1\n"
CHECK = "from code_under_test import double\n\n\ndef test_it():\n    assert double(3) == 6\n"


def test_a_mutant_is_killed_or_survives_or_hangs_and_failing_tests_are_refused(
    tmp_path: Path,
) -> None:
    root = tmp_path / "root"
    (root / "tests").mkdir(parents=True)
    (root / "code_under_test.py").write_text(CODE)
    (root / TESTS[0]).write_text(CHECK)
    copy = Copy(root, tmp_path / "copy")
    found = {}
    for new, seconds in (("3 * x", 60.0), ("x + x", 60.0), ("__import__('time').sleep(99)", 2.0)):
        mutant = Mutant(new, "code_under_test.py", "2 * x", new, "A bug.")
        (result,) = gate.try_mutants([mutant], [copy], TESTS, seconds)
        found[new] = result.verdict, result.killer
        assert (copy.tree / "code_under_test.py").read_text() == CODE
    killed, survived, hung = found.values()
    assert killed == (Verdict.KILLED, "tests/test_code.py::test_it")
    assert (survived[0], hung[0]) == (Verdict.SURVIVED, Verdict.TIMED_OUT)
    (copy.tree / "code_under_test.py").write_text(CODE.replace("2 * x", "x"))
    with pytest.raises(BrokenHarnessError):
        gate.check_unmutated([copy], TESTS, 60.0)
