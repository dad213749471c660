"""Does anything that reads bytes of others break? A search that is guided by the code they reach.

    python -m tests.tools.fuzz                        all targets, 100,000 inputs each
    python -m tests.tools.fuzz frames --runs 1000000  one of them
    python -m tests.tools.fuzz --list                 what there is

An input that breaks a promise ends its target's run, is written to runs/fuzz/crashes, and makes the
command end with 1. Inputs that reached something new are kept in runs/fuzz/corpus: the next run
begins with them. Needs atheris (Linux, Python 3.11 to 3.13), for which a virtual environment is
made at first use.
"""

import argparse
import sys
from pathlib import Path

from tests.tools.fuzz.guided_run import ROOT, default_venvs, run
from tests.tools.fuzz.targets import TARGETS


def main() -> int:
    """Runs what was asked for; the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.tools.fuzz",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="by default all")
    parser.add_argument("--runs", type=int, default=100_000, help="inputs for each")
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "fuzz")
    parser.add_argument("--venvs", type=Path, default=default_venvs())
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
        corpus, crashes = flags.folder / "corpus" / name, flags.folder / "crashes" / name
        has_failed |= not run(TARGETS[name], flags.runs, corpus, crashes, flags.venvs)
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main())
