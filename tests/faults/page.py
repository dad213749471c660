"""The page docs/reliability.md: the promise for each fault, and the tests that show it."""

from collections.abc import Iterator

from tests.faults.matrix import Row, rows

SOURCE = "tests/faults/matrix.toml"

INTRODUCTION = """\
Each fault ends in one of three ways. It has no effect on the run; or it is detected, bounded and \
counted, and everything else continues; or the run stops with [an exit code that names the \
reason](exit_codes.md) and a checkpoint that is durable. Nothing is silently wrong, and nothing \
hangs.

`python -m tests.faults` runs the tests of all rows, including the slow ones that `make test` \
leaves out (marked `gate`); `python -m tests.faults L1 L2` runs those rows.

Two programs look for faults without a row. `pytest -m gate tests/tools/fuzz` gives \
every reader of a peer's bytes (frames, steps, actions, specs, conversations, links) thousands of \
inputs: each must be read, so that writing gives the same again, or refused in one line. \
`make chaos ARGS="--minutes 60"` trains CartPole with four env servers while faults follow each \
other in an order that a seed decides (`python -m tests.tools.chaos --list` names \
them); at the end every row must be accounted for."""

_TITLES = {
    "E": "Environments and env servers",
    "T": "Between env servers and learner",
    "L": "The learner",
}


def title(letter: str) -> str:
    """What the rows that begin with a letter are about."""
    return _TITLES[letter]


def sections() -> Iterator[tuple[str, list[tuple[str, ...]]]]:
    """The title of each table, and its lines without the header."""
    matrix = rows()
    for letter in _TITLES:
        found = [row for name, row in matrix.items() if name.startswith(letter)]
        yield title(letter), [line(row) for row in found]


HEADER = ("row", "fault", "promise", "tests")


def line(row: Row) -> tuple[str, ...]:
    """A row's line of its table."""
    return (row.name, row.fault, row.promise, _tests(row))


def _tests(row: Row) -> str:
    names = [f"`{_short(test)}`" for test in row.tests]
    if row.lacks:
        names.append(f"**lacks**: {row.lacks}")
    if row.reason:
        names.append(f"not automated: {row.reason}")
    return "<br>".join(names) or "**missing**"


def _short(test: str) -> str:
    file, _, name = test.partition("::")
    return f"{file.removeprefix('tests/').removesuffix('.py')}::{name}"
