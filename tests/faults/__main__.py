"""The fault matrix: are its promises kept?

    python -m tests.faults                  the tests of all rows, hours
    python -m tests.faults L1 E3            of these
    python -m tests.faults --list           what there is

Runs the tests of each row, those that `make test` leaves out (marked `gate`) too, and prints a line
for each. Ends with 1 if a row failed. With SEEDRL_GATE_SCALE=0.05 slow tests repeat a twentieth.
"""

import argparse
import subprocess
import sys
import time

from tests.faults.matrix import ROOT, rows

# An expression that is true of all: without it the slow ones (`gate`) are left out.
_PYTEST = (sys.executable, "-m", "pytest", "-n", "0", "-q", "-m", "gate or not gate")


def main() -> int:
    """Runs what was asked for; the exit code."""
    matrix = rows()
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("rows", nargs="*", metavar="ROW", help="by default all")
    parser.add_argument("--list", action="store_true", help="print the rows and end")
    flags = parser.parse_args()
    if unknown := sorted(set(flags.rows) - set(matrix)):
        parser.error(f"unknown rows: {', '.join(unknown)}")
    has_failed = False
    for name in flags.rows or matrix:
        row = matrix[name]
        if flags.list or not row.tests:
            print(f"{name:4} {row.fault}{f': {row.reason}' if row.reason else ''}")
            continue
        start = time.monotonic()
        code = subprocess.run([*_PYTEST, *row.tests], cwd=ROOT, stdout=sys.stderr).returncode
        outcome = "failed" if code else "passed"
        print(f"{name:4} {outcome} in {time.monotonic() - start:.1f} s: {row.fault}", flush=True)
        has_failed |= code != 0
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main())
