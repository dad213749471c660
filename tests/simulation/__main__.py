"""Runs many seeds of the simulator: `python -m tests.simulation --core 100000 --programs 500`."""

import argparse
import json
import sys

# Also sets the compilation cache, as in the tests.
from tests.conftest import set_up_jax
from tests.simulation.learner import CoreLearner
from tests.simulation.program_learner import ProgramLearner
from tests.simulation.sweep import sweep


def main() -> int:
    """Prints a JSON line for each kind of learner; 1 if a rule was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--core", type=int, default=0, help="seeds of the core, without a device")
    parser.add_argument("--programs", type=int, default=0, help="seeds of the jitted programs")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    options = parser.parse_args()
    set_up_jax()
    is_broken = False
    for name, learner in (("core", CoreLearner), ("programs", ProgramLearner)):
        num_seeds = getattr(options, name)
        if not num_seeds:
            continue

        def report(seed: int, last: int = options.first + num_seeds - 1) -> None:
            if seed % 1000 == 999 or seed == last:
                print(f"seed {seed} of {last}", file=sys.stderr, flush=True)

        found = sweep(range(options.first, options.first + num_seeds), learner, report=report)
        line = {"learner": name, "first": options.first, **found._asdict()}
        print(json.dumps(line), flush=True)
        is_broken |= bool(found.broken)
    return int(is_broken)


if __name__ == "__main__":
    sys.exit(main())
