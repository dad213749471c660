"""`seedrl bench [NAME...]`: how well this machine is used, each figure beside its limit."""

import importlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from learner.cli.arguments import (
    require_at_least,
    require_file,
    require_positive,
    write_output,
)
from seedrl.errors import ConfigError
from seedrl.exit_codes import ExitCode
from seedrl.programs.command_line import read
from seedrl.programs.flags import POSITIONAL

if TYPE_CHECKING:  # imports jax
    from rich.console import Console

    from learner.extras.bench.measuring import Pace, Result

PROG = "seedrl bench"
# The folder of the benchmarks; each is a module there with `run(pace) -> Iterator[Result]`.
PACKAGE = "learner.extras.bench"
BENCHMARKS = {
    "pipeline": "environment steps through the whole system against its parts",
    "wire": "messages against a bare gRPC echo",
}


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """Compare this machine's speed with its limits.

    Each figure and its limit, a measurement of the same machine, are measured alternately. Their
    ratio is the result.

    Example: seedrl bench wire --seconds 5 --output bench.json

    Attributes:
      names: benchmarks to run: pipeline, wire; by default all.
      json: print one JSON object instead of a table.
      output: JSON file to write all numbers to, with machine, versions and commit.
      force: replace an existing output file.
      seconds: duration of each measurement.
      rounds: repetitions of each measurement.
    """

    names: Annotated[tuple[str, ...], POSITIONAL] = ()
    json: bool = False
    output: Path | None = None
    force: bool = False
    seconds: float = 1.0
    rounds: int = 5


def run(argv: Sequence[str]) -> int:
    return run_benchmarks(argv, BENCHMARKS, package=PACKAGE, prog=PROG)


def run_benchmarks(
    argv: Sequence[str], benchmarks: Mapping[str, str], *, package: str, prog: str
) -> int:
    """`benchmarks` has what each module of the package measures, by its name."""
    options = read(BenchOptions, argv, prog=prog)
    # Before anything is measured: the last of them may take minutes to come to.
    for name in options.names:
        if name not in benchmarks:
            raise ConfigError(f"unknown benchmark {name!r}: expected {', '.join(benchmarks)}")
    require_at_least(options, rounds=1)
    require_positive(options, "seconds")
    require_file("--output", options.output, force=options.force)
    # After the check: what they import takes seconds.
    from rich.console import Console

    from learner.extras.bench.measuring import Pace, machine
    from learner.processes.tuning import tune_process

    # For images, which most of what is measured in this very process moves.
    tune_process(keeps_freed_memory=True)
    pace = Pace(options.rounds, options.seconds)
    results: list[Result] = []
    for name in options.names or benchmarks:
        with Console(stderr=True).status(f"{name}: {benchmarks[name]}"):
            # Only those that are asked for are imported.
            results += importlib.import_module(f"{package}.{name}").run(pace)
    if options.json:
        print(as_json(results, machine(), pace))
    else:
        print_results(results, Console())
    if options.output is not None:
        write(options.output, results, machine(), pace)
    return ExitCode.OK


def print_results(results: "Sequence[Result]", console: "Console") -> None:
    """A table, and a line with the conditions of each result."""
    from rich.table import Table

    table = Table()
    for column in ("figure", "ours", "limit", "ratio", "target"):
        table.add_column(column, overflow="fold")
    for result in results:
        table.add_row(*result.cells())
    console.print(table)
    notes = (result.note() for result in results)
    console.print("Measured with", *notes, sep="\n", highlight=False)


def as_json(results: "Sequence[Result]", machine: dict[str, Any], pace: "Pace") -> str:
    """All numbers as one JSON object."""
    rows = [result.to_json() for result in results]
    return json.dumps({"machine": machine, "pace": pace._asdict(), "rows": rows}, indent=2)


def write(path: Path, results: "Sequence[Result]", machine: dict[str, Any], pace: "Pace") -> None:
    """Writes all numbers as JSON."""
    write_output(path, as_json(results, machine, pace) + "\n")
