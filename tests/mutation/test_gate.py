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


def test_zero_is_doubled():
    assert double(0) == 0


def test_three_is_doubled():
    assert double(3) == 6
"""


def mutant(name: str, old: str, new: str) -> Mutant:
    return Mutant(name, "code_under_test.py", old, new, "A bug.", "a promise")


WRONG = mutant("wrong", "2 * x", "3 * x")
BROKEN = mutant("broken", "return 2 * x", "return (")
UNNOTICED = mutant("unnoticed", "unused = 1", "unused = 2")
CRASHES = mutant("crashes", "    return 2 * x", "    __import__('os').abort()")
HANGS = mutant("hangs", "    return 2 * x", "    __import__('time').sleep(3600)")


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    root = tmp_path / "root"
    (root / "tests").mkdir(parents=True)
    (root / ".git").mkdir()
    (root / "code_under_test.py").write_text(CODE)
    (root / TESTS[0]).write_text(CHECKS)
    return Copy(root, tmp_path / "copy")


def tried(copy: Copy, mutant: Mutant, timeout_seconds: float = 60.0) -> Result:
    (result,) = gate.try_mutants([mutant], [copy], TESTS, timeout_seconds)
    return result


def test_a_mutant_is_killed_by_the_first_test_that_fails(copy: Copy) -> None:
    result = tried(copy, WRONG)
    assert result.verdict is Verdict.KILLED
    assert result.killer == "tests/test_code.py::test_three_is_doubled"
    # The copy is as before: what no test looks at survives.
    assert (copy.tree / "code_under_test.py").read_text() == CODE
    assert tried(copy, UNNOTICED).verdict is Verdict.SURVIVED


def test_code_that_does_not_load_or_crashes_is_killed(copy: Copy) -> None:
    assert tried(copy, BROKEN).verdict is Verdict.KILLED
    crash = tried(copy, CRASHES)
    assert (crash.verdict, crash.killer) == (Verdict.KILLED, "a crash with signal 6")


def test_a_hang_is_not_a_kill(copy: Copy) -> None:
    assert tried(copy, HANGS, timeout_seconds=1.0).verdict is Verdict.TIMED_OUT


def test_tests_that_fail_without_a_mutant_are_refused(copy: Copy) -> None:
    assert gate.check_unmutated([copy], TESTS, 60.0) > 0
    (copy.tree / "code_under_test.py").write_text(CODE.replace("2 * x", "x"))
    with pytest.raises(BrokenHarnessError, match="killed by tests/test_code.py::test_three"):
        gate.check_unmutated([copy], TESTS, 60.0)


def test_the_nearest_tests_come_first_and_each_test_once() -> None:
    returns, index, replay, slots, batcher, serving, system = tests = (
        "tests/seedrl/rl/test_returns.py",
        "tests/seedrl/replay/test_index.py",
        "tests/seedrl/replay/test_buffer.py",
        "tests/learner/serving/test_leases.py",
        "tests/learner/serving/test_batcher.py",
        "tests/learner/serving/test_core.py",
        "tests/system/test_experience.py",
    )
    assert gate.tiers(tests, "learner/serving/core.py") == [
        [serving],
        [slots, batcher],
        [system, returns, index, replay],
    ]
    assert gate.tiers(tests, "seedrl/replay/buffer.py") == [
        [replay],
        [index, returns],
        [system, slots, batcher, serving],
    ]
    # A module without a test of its own.
    assert gate.tiers(tests, "learner/session/process.py")[0] == [slots, batcher, serving]


def test_one_mutant_represents_each_module_that_has_a_test_of_its_own() -> None:
    equivalent = UNNOTICED._replace(equivalent="nobody reads it")
    untested = WRONG._replace(name="untested", file="other.py")
    mutants = [equivalent, WRONG, BROKEN, untested]
    tests = ("tests/./test_code_under_test.py",)
    assert gate.representatives(mutants, tests) == [WRONG]
    assert gate.representatives(mutants, tests, left_out=["wrong"]) == [BROKEN]
