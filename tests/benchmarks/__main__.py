"""Benchmarks for developers: `python -m tests.benchmarks [NAME...]`, flags as of `seedrl bench`."""

import sys

from learner.cli.bench import run_benchmarks
from seedrl.programs.outcome import exit_code

PROG = "python -m tests.benchmarks"
BENCHMARKS = {
    "replay": "inserting and sampling against a memcpy, memory of a stored step",
    "inference": "acting on a batch against the bare network",
    "learner": "updates of the running system against the bare update",
    "on_policy": "environment steps of IMPALA and PPO through the whole system against its parts",
    "tokens": "completions through the whole system against a decode loop",
}


def main() -> int:
    """Measures and prints; returns the exit code."""
    return exit_code(
        lambda: run_benchmarks(sys.argv[1:], BENCHMARKS, package="tests.benchmarks", prog=PROG),
        prog=PROG,
    )


if __name__ == "__main__":
    sys.exit(main())
