"""The page docs/reliability.md: what is promised of each fault, and what its tests last showed."""

from collections.abc import Iterator

from tests.faults import records
from tests.faults.matrix import Row, rows
from tests.faults.records import Figure, Record

SOURCE = "tests/faults/matrix.toml and docs/results/faults.jsonl"

INTRODUCTION = """\
Each fault ends in one of three ways. Nobody notices it; or it is detected, bounded and counted, \
and everyone else continues; or the run stops with [an exit code that names the reason](\
exit_codes.md) and a checkpoint that is durable. Nothing is silently wrong, and nothing hangs.

`python -m tests.faults` runs the tests of all rows, those that `make test` leaves out (marked \
`gate`) too, and adds a line for each row to `docs/results/faults.jsonl`; `python -m tests.faults \
L1 L2` runs those rows, and `--missing` those that have not passed at the commit. A row without a \
figure has tests that say yes or no; a dash means that they run in `make test` alone so far.

What others notice beside an attack (`_rate_of_others`, `_p99_of_others`) is in comparison with a \
time in which an attacker of the same kind attacks another service, of the least priority. On a \
machine of few cores the attacker's own computing, and the kernel's for it, would else count as \
the learner's. The same in comparison with a quiet time stands beside it (`_of_quiet`).

Two commands look for what no row names. `python -m tests.fuzz` gives whatever reads bytes of a \
peer or a disk (frames, steps, actions, specs, whole conversations of either side, links, \
sums, meta data of checkpoints, recordings, tokens, certificates, logs of sent steps) inputs \
that reach more and more of its code: it must read them, so that writing gives the same again, or \
refuse them in one line, with the error that it documents. Each run adds lines to \
`docs/results/fuzz.jsonl`, the last table below; a few inputs of the same kind are part of `make \
test`. `make soak MINUTES=60` trains CartPole with four env servers, two of them behind a proxy, \
while faults follow each other in an order that a seed decides (`python -m tests.soak --list` \
names them), and adds to `docs/results/soak.jsonl` whether every row is accounted for, how \
memory, descriptors and threads developed after the last start of the learner, what was started \
again, and how many updates each kill has cost. It does not bring about the loss of a host."""

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
    newest = records.last(records.read())
    matrix = rows()
    for letter in _TITLES:
        found = [row for name, row in matrix.items() if name.startswith(letter)]
        yield title(letter), [line(row, newest.get(row.name)) for row in found]


HEADER = ("row", "fault", "promise", "tests", "last figures", "when")


def line(row: Row, record: Record | None) -> tuple[str, ...]:
    """A row's line of its table."""
    return (row.name, row.fault, row.promise, _tests(row), *_shown(record))


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


def _shown(record: Record | None) -> tuple[str, str]:
    if record is None:
        return "-", "-"
    figures = ", ".join(f"{name} {_number(value)}" for name, value in record.figures.items())
    failed = "**failed** " * (record.outcome == "failed")
    return failed + (figures or record.outcome), f"{record.date}, {record.commit[:7]}"


def _number(value: Figure) -> str:
    return f"{value:.4g}" if isinstance(value, float) else f"{value}"
