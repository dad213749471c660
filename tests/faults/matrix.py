"""The fault matrix: every fault that we know of, what is promised, and the tests that inject it.

`matrix.toml` has a table for each row, called by its number: E1 to E12 are faults of environments,
T1 to T16 of what is between, L1 to L20 of the learner.
"""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
MATRIX = Path(__file__).with_name("matrix.toml")
ROWS = (
    *(f"E{number}" for number in range(1, 13)),
    *(f"T{number}" for number in range(1, 17)),
    *(f"L{number}" for number in range(1, 21)),
)
_FIELDS = {"fault", "promise", "tests", "reason", "lacks"}


class Row(NamedTuple):
    """A fault.

    Attributes:
      name: its number in the matrix.
      fault: what happens.
      promise: what we do about it.
      tests: node ids of pytest, of tests that inject it; those of a test with parameters are all.
      reason: why no test injects it, if none can.
      lacks: what the tests do not show yet.
    """

    name: str
    fault: str
    promise: str
    tests: tuple[str, ...] = ()
    reason: str = ""
    lacks: str = ""

    @property
    def is_missing(self) -> bool:
        """Nothing shows that the promise is kept."""
        return not self.tests and not self.reason


def rows(path: Path = MATRIX) -> dict[str, Row]:
    """The matrix by the names of its rows, in order; ValueError if it is not one."""
    tables = tomllib.loads(path.read_text())
    if set(tables) != set(ROWS):
        differing = sorted(set(tables) ^ set(ROWS))
        raise ValueError(f"{path.name}: missing or unknown rows: {', '.join(differing)}")
    return {name: _row(name, tables[name]) for name in ROWS}


def _row(name: str, table: dict[str, object]) -> Row:
    unknown = sorted(set(table) - _FIELDS)
    if unknown or not table.get("fault") or not table.get("promise"):
        raise ValueError(f"row {name}: expected {sorted(_FIELDS)}, got {sorted(table)}")
    texts = {key: str(table.get(key, "")) for key in ("fault", "promise", "reason", "lacks")}
    tests = table.get("tests", [])
    if not isinstance(tests, list):
        raise ValueError(f"row {name}: expected a list of tests")
    return Row(name, tests=tuple(map(str, tests)), **texts)


def unknown_tests(tests: Iterator[str]) -> list[str]:
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
