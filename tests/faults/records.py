"""What the rows of the fault matrix showed when they were run: one JSON object a line."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias, get_args

from tests.faults.matrix import ROOT

RECORDS = ROOT / "docs" / "results" / "faults.jsonl"

Figure: TypeAlias = float | int | str
Outcome = Literal["passed", "failed"]


class Record(NamedTuple):
    """One run of the tests of a row.

    Attributes:
      row: its name.
      outcome: of all of its tests together.
      figures: what they measured, by name.
      seconds: how long they took.
      commit, date, machine: of what, when in UTC, and on what.
    """

    row: str
    outcome: Outcome
    figures: dict[str, Figure]
    seconds: float
    commit: str
    date: str
    machine: str

    def line(self) -> str:
        """As the file has it."""
        return json.dumps(self._asdict())


def read(path: Path = RECORDS) -> list[Record]:
    """All records in the order in which they were made; none without a file."""
    if not path.exists():
        return []
    found = [Record(**json.loads(line)) for line in path.read_text().splitlines()]
    assert all(record.outcome in get_args(Outcome) for record in found)
    return found


def append(record: Record, path: Path = RECORDS) -> None:
    """Adds a record at the end."""
    with path.open("a") as file:
        file.write(record.line() + "\n")


def last(records: Iterable[Record]) -> dict[str, Record]:
    """The newest record of each row that has one."""
    return {record.row: record for record in records}


def without_record(rows: Iterable[str], records: Iterable[Record], commit: str) -> list[str]:
    """Those of the rows whose tests have not passed at this commit yet."""
    done = {
        record.row for record in records if (record.commit, record.outcome) == (commit, "passed")
    }
    return [row for row in rows if row not in done]
