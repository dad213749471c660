"""A day with an accelerator, in calls of bounded time: `python -m tests.accelerator [STAGE...]`.

For a bare machine that has Python, jax with its accelerator, and what else `wheels.py` names, but
no package index. `make wheels`, where there is one, gathers the rest into `.whl`, which travels
with the checkout. The first call makes an environment of both; then come the machine's facts, the
tests, the benchmarks, and `pong_r2d2` and `atari_r2d2` in pieces that resume each other.

Every stage has a limit, one line says how it ended, and one that fails stops no other. The same
command again goes on with what is left, or with another piece of what has pieces; a stage that is
named is run whatever was before. What is kept for
that is in runs/accelerator; the record, JSON and Markdown, is written below --out after each stage.

This file imports the standard library alone: it runs before anything is installed.
"""

import argparse
import sys
import time
from pathlib import Path

from tests.accelerator.day import Day
from tests.accelerator.stages import DAY, REHEARSAL, named, stages

ROOT = Path(__file__).parents[2]


def main() -> int:
    """Returns the exit code: 1 if a stage of this call has failed, 2 for a wrong call."""
    parser = argparse.ArgumentParser(prog="python -m tests.accelerator")
    parser.add_argument("stages", nargs="*", metavar="STAGE", help="by default all that are left")
    parser.add_argument("--seconds", type=float, default=540.0, help="of this call, at most")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results" / "accelerator")
    parser.add_argument("--wheels", type=Path, default=ROOT / ".whl")
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "accelerator")
    parser.add_argument("--commit", default="", help="of the checkout, where there is no .git")
    parser.add_argument(
        "--rehearse", action="store_true", help="small networks and short pieces, for a CPU"
    )
    options = parser.parse_args()
    folder = options.folder.resolve()
    day = Day(ROOT, folder, options.out.resolve(), commit=options.commit)
    every = stages(REHEARSAL if options.rehearse else DAY, folder, options.wheels.resolve())
    if unknown := sorted(set(options.stages) - {stage.name for stage in every}):
        names = ", ".join(stage.name for stage in every)
        print(f"expected stages of {names}; got {', '.join(unknown)}", file=sys.stderr)
        return 2
    end = time.monotonic() + options.seconds
    chosen = named(every, options.stages)
    is_asked_for = bool(options.stages)
    outcomes = day.run(chosen, lambda: end - time.monotonic(), also_done=is_asked_for)
    return int(any(outcome.status == "failed" for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
