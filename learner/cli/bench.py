"""`seedrl bench [NAME...]`: how well this machine is used, each figure beside its limit."""

import difflib
import importlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from learner.cli.arguments import parse_flags
from seedrl.errors import ConfigError, ExitCode

if TYPE_CHECKING:  # imports jax
    from learner.bench.alternation import Pace
    from learner.bench.row import Row

PROG = "seedrl bench"
# Each is a module of learner.bench with `run(pace) -> Iterator[Row]`.
BENCHMARKS = {
    "replay": "inserting and sampling against a memcpy, memory of a stored step",
    "inference": "acting on a batch against the bare network",
    "wire": "messages against a bare gRPC echo",
    "pipeline": "environment steps through the whole system against its parts",
    "learner": "updates of the running system against the bare update",
    "scaling": "many env servers that sleep against linear scaling",
    "growth": "a unit of work as sizes grow against the same with the size before",
    "useful": "CPU time that stepping and compiled programs need against all that is spent",
}


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """Measures how well this machine is used. Every figure stands beside a limit of the machine
    itself, and both are measured in turn: what counts is their ratio.

    Attributes:
      names: benchmarks to run; by default all.
      json: file for all numbers, with machine, versions and commit.
      seconds: of each single measurement.
      rounds: times that each thing is measured.
    """

    names: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    json: Path | None = None
    seconds: float = 1.0
    rounds: int = 5


def run(argv: Sequence[str]) -> int:
    """Measures and prints; returns the exit code."""
    options = parse_flags(BenchOptions, argv, prog=PROG)
    _check(options)
    # After the check: what they import takes seconds.
    from rich.console import Console

    from learner.bench import machine, report
    from learner.bench.alternation import Pace
    from learner.session.process import tune_process

    # For images, which most of what is measured in this very process moves; see `own_process`.
    tune_process(keeps_freed_memory=True)
    pace = Pace(options.rounds, options.seconds)
    rows: list[Row] = []
    console, status = Console(), Console(stderr=True)
    try:
        for name in options.names or BENCHMARKS:
            with status.status(f"{name}: {BENCHMARKS[name]}"):
                rows += measure(name, pace)
    finally:
        # Also what was measured before a benchmark failed.
        console.print(report.table(rows))
        console.print("Measured with", *report.notes(rows), sep="\n", highlight=False)
        if options.json is not None:
            text = json.dumps(report.to_json(rows, machine.describe(), pace), indent=2)
            options.json.write_text(text + "\n")
    return ExitCode.OK


def measure(name: str, pace: "Pace") -> Iterator["Row"]:
    """The rows of one benchmark, each as soon as it is known; those of one configuration at once if
    they are measured in a process of their own."""
    module = importlib.import_module(f"learner.bench.{name}")
    rows: Iterator[Row] = module.run(pace)
    return rows


def _check(options: BenchOptions) -> None:
    for name in options.names:
        if name not in BENCHMARKS:
            close = difflib.get_close_matches(name, BENCHMARKS, n=1)
            hint = f"did you mean {close[0]}? " if close else ""
            raise ConfigError(f"unknown benchmark {name!r}: {hint}expected {', '.join(BENCHMARKS)}")
    if options.rounds < 1:
        raise ConfigError(f"--rounds: expected at least 1, got {options.rounds}")
    if not options.seconds > 0:
        raise ConfigError(f"--seconds: expected more than 0, got {options.seconds:g}")
    if options.json is not None and not options.json.parent.is_dir():
        raise ConfigError(f"--json: expected a file in an existing folder, got {options.json}")
