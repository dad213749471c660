"""The fault matrix: every fault that we know of, what is promised, and the tests that inject it.

`matrix.toml` has a table for each row, called by its number: E is for environments, T for what is
between them and the learner, L for the learner. The page docs/reliability.md shows it.
"""

import ast
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SOURCE = "tests/faults/matrix.toml"
INTRODUCTION = """\
Each fault ends in one of three ways. It has no effect on the run; or it is detected, bounded and \
counted, and everything else continues; or the run stops with [an exit code that names the \
reason](exit_codes.md) and a checkpoint that is durable. Nothing is silently wrong, and nothing \
hangs.

`python -m tests.faults` runs the tests of all rows, including the slow ones that `make test` \
leaves out (marked `gate`); `python -m tests.faults L1 L2` runs those rows.

Two programs look for faults without a row. `pytest -m gate tests/tools/fuzz` gives \
every reader of a peer's bytes (frames, steps, actions, conversations) thousands of \
inputs: each must be read, so that writing gives the same again, or refused in one line. \
`make chaos ARGS="--minutes 60"` trains CartPole with four env servers while faults follow each \
other in an order that a seed decides (`python -m tests.tools.chaos --list` names \
them); at the end every row must be accounted for."""
_TITLES = {
    "E": "Environments and env servers",
    "T": "Between env servers and learner",
    "L": "The learner",
}
HEADER = ("row", "fault", "promise", "tests")


class Row(NamedTuple):
    """A fault.

    Attributes:
      fault: what happens.
      promise: what we do about it.
      tests: node ids of pytest, of tests that inject it; those of a test with parameters are all.
      reason: why no test injects it, if none can.
    """

    fault: str
    promise: str
    tests: tuple[str, ...] = ()
    reason: str = ""


def rows() -> dict[str, Row]:
    """The matrix by the names of its rows, in order."""
    tables = tomllib.loads((ROOT / SOURCE).read_text())
    return {name: Row(**table) for name, table in tables.items()}


def sections() -> Iterator[tuple[str, list[tuple[str, ...]]]]:
    """The title of each table of the page, and its lines without the header."""
    for letter, title in _TITLES.items():
        found = {name: row for name, row in rows().items() if name.startswith(letter)}
        yield title, [_line(name, row) for name, row in found.items()]


def _line(name: str, row: Row) -> tuple[str, ...]:
    tests = [f"`{test.removeprefix('tests/').replace('.py::', '::')}`" for test in row.tests] or [
        f"not automated: {row.reason}"
    ]
    return name, row.fault, row.promise, "<br>".join(tests)


def unknown_tests(tests: Iterable[str]) -> list[str]:
    """Those node ids that are no test function of a file; parameters are not looked at."""
    return sorted({test for test in tests if not _is_test(test)})


def _is_test(test: str) -> bool:
    file, _, name = test.partition("::")
    path = ROOT / file
    if not name.startswith("test_") or not path.is_file():
        return False
    return any(
        isinstance(node, ast.FunctionDef) and node.name == name.partition("[")[0]
        for node in ast.walk(ast.parse(path.read_text(), file))
    )
