"""Runs many seeds of the simulator, in as many processes as there are cores.

    python -m tests.simulation --core 100000 --programs 500

`--core` needs no device: the serving core, its peers and the page index, all else simulated.
Prints a JSON line for each kind of learner; ends with 1 if a rule was broken.
"""

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed

# Sets the compilation cache and the path of the plug-in package, as in the tests.
import tests.conftest  # noqa: F401
from tests.simulation.sweep import Sweep, merged, sweep_of


def main() -> int:
    """See above."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--core", type=int, default=0, help="seeds of the core, without a device")
    parser.add_argument("--programs", type=int, default=0, help="seeds of the jitted programs")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes")
    options = parser.parse_args()
    is_broken = False
    # The programs take seconds to compile, in each process.
    for kind, seeds_at_once in (("core", 250), ("programs", 1000)):
        num_seeds = getattr(options, kind)
        if not num_seeds:
            continue
        start = time.perf_counter()
        at_once = min(seeds_at_once, -(-num_seeds // options.workers))
        found = merged(_sweeps(kind, options.first, num_seeds, at_once, options.workers))
        line = {"learner": kind, "first": options.first, **found._asdict()}
        line["seconds"] = round(time.perf_counter() - start, 1)
        print(json.dumps(line), flush=True)
        is_broken |= bool(found.broken)
    return int(is_broken)


def _sweeps(kind: str, first: int, num_seeds: int, at_once: int, workers: int) -> Iterator[Sweep]:
    last, num_done, num_broken = first + num_seeds, 0, 0
    # New programs, never forks: jax has threads.
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        begins = range(first, last, at_once)
        tasks = [pool.submit(sweep_of, kind, begin, min(begin + at_once, last)) for begin in begins]
        for task in as_completed(tasks):
            found = task.result()
            num_done, num_broken = num_done + found.seeds, num_broken + len(found.broken)
            # Here, too: a sweep of an hour may be stopped.
            print(f"{num_done} of {num_seeds}, broken: {num_broken}", file=sys.stderr, flush=True)
            yield found


if __name__ == "__main__":
    sys.exit(main())
