"""The fault matrix: every fault that we know of, what is promised, and the tests that inject it.

`matrix.toml` has a table for each row, called by its number: E is for environments, T for what is
between them and the learner, L for the learner. docs/reliability.md shows its promises and figures,
docs/fault_matrix.md its tests.
"""

import ast
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SOURCE = "tests/faults/matrix.toml"
GUARANTEES = """\
Each fault has one of three outcomes:

- it has no effect on the run;
- it is detected and counted, its effect is limited, and everything else continues;
- the run stops with [an exit code that names the reason](exit_codes.md) and keeps its last \
durable (completely written) checkpoint.

None of these faults passes unnoticed. Two processes wait without a limit, and both log it: a \
learner that has too few env servers to continue, and an env server without a learner. Everything \
else that waits has a deadline. On one machine `seedrl train` restarts env servers; a learner, and \
processes on several machines, are restarted by [your scheduler](scaling.md#restarts). With \
`learning.schedule` `synchronous` or `deterministic` acting waits for all training slots, so there \
all others wait for an env server that is lost, slow or hangs.

"Last figure" is the last measurement, with its commit; all were made with CartPole on two CPU \
cores in November 2026. A row without a figure has tests in every `make test`, which measure \
nothing. The [fault matrix](fault_matrix.md) lists the tests of each row. [The proof of the \
data path](proof.md) has the counts of time steps, and the [glossary](glossary.md) the terms."""
TESTS = """\
The tests that inject the faults of the [guarantees](reliability.md).

`python -m tests.faults` runs the tests of all rows, including the slow ones that `make test` \
leaves out (marked `gate`); `python -m tests.faults L1 L2` runs only those rows.

Two programs search for faults without a row:

- `pytest -m gate tests/tools/fuzz` gives every parser of a peer's bytes (frames, steps, actions, \
conversations) thousands of inputs. Each input must either be refused in one line, or be parsed \
so that writing it again gives the same bytes.
- `make chaos ARGS="--minutes 60"` trains CartPole with four env servers while faults follow each \
other in random order (`python -m tests.tools.chaos --list` names them). At the end every time \
step must be accounted for."""
_TITLES = {
    "E": "Environments and env servers",
    "T": "Between env servers and learner",
    "L": "The learner",
}


class Row(NamedTuple):
    """A fault.

    Attributes:
      fault: what happens.
      promise: what we do about it.
      figure: what its tests measured last, and the commit.
      tests: node ids of pytest, of tests that inject it; those of a test with parameters are all.
      reason: why no test injects it, if none can.
    """

    fault: str
    promise: str
    figure: str = ""
    tests: tuple[str, ...] = ()
    reason: str = ""


def rows() -> dict[str, Row]:
    """The matrix by the names of its rows, in order."""
    tables = tomllib.loads((ROOT / SOURCE).read_text())
    return {name: Row(**table) for name, table in tables.items()}


def sections() -> Iterator[tuple[str, dict[str, Row]]]:
    """The title of each table of the pages, and its rows by name."""
    for letter, title in _TITLES.items():
        yield title, {name: row for name, row in rows().items() if name.startswith(letter)}


def tests_of(row: Row) -> str:
    """A cell of the page of tests."""
    tests = [f"`{test.removeprefix('tests/').replace('.py::', '::')}`" for test in row.tests]
    return "<br>".join(tests) or f"not automated: {row.reason}"


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
