"""What runs of the search have shown: one JSON object a line."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

RECORDS = Path(__file__).parents[2] / "docs" / "results" / "fuzz.jsonl"


class FuzzRecord(NamedTuple):
    """What a run found.

    Attributes:
      target: what was fuzzed.
      engine: with what.
      inputs: how many.
      edges: of our code that were reached; kept: inputs that reached something new.
      crashes: inputs that broke a promise; the first one ends a run.
      peak_rss_mib: of the process.
      seconds, commit, date, machine: how long, of what, when in UTC, and on what.
    """

    target: str
    engine: str
    inputs: int
    edges: int
    kept: int
    crashes: int
    peak_rss_mib: int
    seconds: float
    commit: str
    date: str
    machine: str


def read(path: Path = RECORDS) -> list[FuzzRecord]:
    """All records in the order in which they were made; none without a file."""
    if not path.exists():
        return []
    return [FuzzRecord(**json.loads(line)) for line in path.read_text().splitlines()]


def append(record: FuzzRecord, path: Path = RECORDS) -> None:
    """Adds a record at the end."""
    with path.open("a") as file:
        file.write(json.dumps(record._asdict()) + "\n")


def num_inputs(target: str, commit: str, records: Iterable[FuzzRecord]) -> int:
    """How many inputs a target has been given at a commit; whether files differ is not seen."""
    name = _clean(commit)
    return sum(
        record.inputs
        for record in records
        if record.target == target and _clean(record.commit) == name
    )


def _clean(commit: str) -> str:
    # Records themselves make a checkout differ from its commit.
    return commit.partition("-")[0]
