"""The part of docs/reliability.md that says what the search for breaking inputs has found."""

import itertools
from collections.abc import Iterable, Iterator

from tests.fuzz.records import FuzzRecord

TITLE = "Inputs that nobody thought of"
INTRODUCTION = """\
What `python -m tests.fuzz` has found so far: all inputs of all records, how many of them broke a \
promise, how many were given since the last one that did, and the edges of our code that the \
newest run has reached."""
HEADER = ("reader", "inputs", "broke a promise", "inputs since", "edges", "peak MiB", "when")


def lines(records: Iterable[FuzzRecord]) -> Iterator[tuple[str, ...]]:
    """A line of the table for each reader that has a record, and one for all of them."""
    records = list(records)
    num_since = 0
    for name in dict.fromkeys(record.target for record in records):
        own = [record for record in records if record.target == name]
        newest, since = own[-1], _since(own)
        num_since += since
        when = f"{newest.date}, {newest.commit[:7]}"
        figures = (f"{since:,}", f"{newest.edges}", f"{newest.peak_rss_mib}", when)
        yield (name, *_sums(own), *figures)
    yield ("all", *_sums(records), f"{num_since:,}", "", "", "")


def _sums(records: list[FuzzRecord]) -> tuple[str, str]:
    inputs = sum(record.inputs for record in records)
    return f"{inputs:,}", f"{sum(record.crashes for record in records)}"


def _since(records: list[FuzzRecord]) -> int:
    unbroken = itertools.takewhile(lambda record: not record.crashes, reversed(records))
    return sum(record.inputs for record in unbroken)
