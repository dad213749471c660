"""The fault matrix: are its promises kept?

    python -m tests.faults                  the tests of all rows
    python -m tests.faults L1 E3            of these
    python -m tests.faults --missing        of those that have not passed at this commit
    python -m tests.faults --list           what there is, and what is missing

Prints a JSON line for each row, appends it to docs/results/faults.jsonl and writes
docs/reliability.md again. Ends with 1 if a row failed. With SEEDRL_GATE_SCALE=0.05 slow tests
repeat a twentieth of what they do, and nothing is recorded.
"""

import argparse
import os
import sys

from tests.architecture import documents
from tests.faults import records, running
from tests.faults.matrix import rows
from tests.faults.scale import VARIABLE


def main() -> int:
    """Runs what was asked for; the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("rows", nargs="*", metavar="ROW", help="by default all")
    parser.add_argument("--missing", action="store_true", help="what has not passed at this commit")
    parser.add_argument("--list", action="store_true", help="print the rows and end")
    flags = parser.parse_args()
    matrix = rows()
    if unknown := sorted(set(flags.rows) - set(matrix)):
        parser.error(f"unknown rows: {', '.join(unknown)}")
    chosen = [name for name in matrix if name in flags.rows or not flags.rows]
    if flags.list:
        for name in chosen:
            row = matrix[name]
            state = "missing" if row.is_missing else row.lacks and f"lacks {row.lacks}"
            print(f"{name:4} {row.fault}: {state or 'covered'}")
        return 0
    if flags.missing:
        chosen = records.without_record(chosen, records.read(), running.present_commit())
    is_recorded = VARIABLE not in os.environ
    has_failed = False
    for name in chosen:
        if not matrix[name].tests:
            print(f"{name}: {matrix[name].reason or 'no test yet'}", file=sys.stderr)
            continue
        record = running.run(matrix[name])
        has_failed |= record.outcome == "failed"
        print(record.line(), flush=True)
        if is_recorded:
            records.append(record)
    if is_recorded:
        for changed in documents.write():
            print(f"written: {changed}", file=sys.stderr)
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main())
