"""Does anything that reads bytes of others break? A search that is guided by what they reach.

    python -m tests.fuzz                        all targets, 100,000 inputs each
    python -m tests.fuzz frames --runs 1000000  one of them
    python -m tests.fuzz --missing              what is left of that at this commit
    python -m tests.fuzz --list                 what there is

Prints a JSON line for each 100,000 inputs of a target at most, appends it to
docs/results/fuzz.jsonl, and writes docs/reliability.md again at the end. An input that breaks a
promise ends its target's run, is written to runs/fuzz/crashes, and makes the command end with 1.
Inputs that reached something new are kept in runs/fuzz/corpus: the next run begins with them. Needs
atheris (Linux, Python 3.11 to 3.13), for which a virtual environment is made at first use.
"""

import argparse
import json
import sys
from pathlib import Path

from learner.bench.machine import commit
from tests.architecture import documents
from tests.fuzz import records
from tests.fuzz.guided_run import ROOT, default_venvs, run
from tests.fuzz.targets import TARGETS

# Of one record: what is interrupted loses no more.
_PIECE = 100_000


def main() -> int:
    """Runs what was asked for; the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="by default all")
    parser.add_argument("--runs", type=int, default=100_000, help="inputs for each")
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "fuzz")
    parser.add_argument("--venvs", type=Path, default=default_venvs())
    parser.add_argument("--records", type=Path, default=records.RECORDS)
    parser.add_argument("--missing", action="store_true", help="what is left at this commit")
    parser.add_argument("--list", action="store_true", help="print the targets and end")
    flags = parser.parse_args()
    if unknown := sorted(set(flags.targets) - set(TARGETS)):
        parser.error(f"unknown targets: {', '.join(unknown)}; expected {', '.join(TARGETS)}")
    if flags.list:
        for target in TARGETS.values():
            print(f"{target.name:16} {(target.check.__doc__ or '').splitlines()[0]}")
        return 0
    has_failed = False
    for name in flags.targets or TARGETS:
        left = flags.runs
        if flags.missing:
            left -= records.num_inputs(name, commit() or "unknown", records.read(flags.records))
        has_failed |= not _holds(name, left, flags)
    if flags.records == records.RECORDS:
        for changed in documents.write():
            print(f"written: {changed}", file=sys.stderr)
    return int(has_failed)


def _holds(name: str, num_inputs: int, flags: argparse.Namespace) -> bool:
    corpus, crashes = flags.folder / "corpus" / name, flags.folder / "crashes" / name
    for start in range(0, num_inputs, _PIECE):
        piece = min(_PIECE, num_inputs - start)
        record = run(TARGETS[name], piece, corpus, crashes, flags.venvs)
        print(json.dumps(record._asdict()), flush=True)
        records.append(record, flags.records)
        if record.crashes:
            return False
    return True


if __name__ == "__main__":
    sys.exit(main())
