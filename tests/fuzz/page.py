"""The part of docs/reliability.md that says what the search for breaking inputs has found."""

from collections.abc import Iterable, Iterator

from tests.fuzz.records import FuzzRecord

TITLE = "Inputs that nobody thought of"
INTRODUCTION = """\
What `python -m tests.fuzz` has found so far: all inputs of all records, how many of them broke a \
promise, and the edges of our code that the newest run has reached."""
HEADER = ("reader", "inputs", "broke a promise", "edges", "peak MiB", "when")


def lines(records: Iterable[FuzzRecord]) -> Iterator[tuple[str, ...]]:
    """A line of the table for each reader that has a record, and one for all of them."""
    records = list(records)
    for name in dict.fromkeys(record.target for record in records):
        own = [record for record in records if record.target == name]
        newest = own[-1]
        when = f"{newest.date}, {newest.commit[:7]}"
        yield (name, *_sums(own), f"{newest.edges}", f"{newest.peak_rss_mib}", when)
    yield ("all", *_sums(records), "", "", "")


def _sums(records: list[FuzzRecord]) -> tuple[str, str]:
    inputs = sum(record.inputs for record in records)
    return f"{inputs:,}", f"{sum(record.crashes for record in records)}"
