"""Benchmarks for developers: `python -m tests.benchmarks [NAME...]`, flags as of `seedrl bench`."""

import sys

from learner.cli.bench import run_benchmarks
from seedrl.programs.outcome import exit_code

PROG = "python -m tests.benchmarks"
BENCHMARKS = {
    "growth": "a unit of work as sizes grow against the same with the size before",
    "cpu_efficiency": "CPU time that stepping and programs need against all that is spent",
}


def main() -> int:
    """Measures and prints; returns the exit code."""
    return exit_code(
        lambda: run_benchmarks(sys.argv[1:], BENCHMARKS, package="tests.benchmarks", prog=PROG),
        prog=PROG,
    )


if __name__ == "__main__":
    sys.exit(main())
