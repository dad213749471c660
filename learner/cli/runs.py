"""`seedrl runs FOLDER`: lists the runs in a folder."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from learner.checkpoints.run_records import RunRecord, read_run
from learner.cli.arguments import parse_flags
from seedrl.errors import ConfigError
from seedrl.exit_codes import ExitCode
from seedrl.run_files import find_runs

PROG = "seedrl runs"

_COLUMNS = ("run", "config", "seed", "state", "steps", "last", "best", "why")
_NUMBERS = ("seed", "steps", "last", "best")


@dataclass(frozen=True, kw_only=True)
class RunsOptions:
    """Lists the runs in a folder, at most three folders deep, from their files alone:
    configuration, seed, state (running, finished, interrupted or failed, and why), training
    environment steps, and the mean returns of the last and of the best round of evaluation.

    Attributes:
      folder: where to look.
      json: print one JSON object a line.
    """

    folder: Annotated[Path, tyro.conf.Positional] = Path("runs")
    json: bool = False


def run(argv: Sequence[str]) -> int:
    """Prints the list; returns the exit code."""
    options = parse_flags(RunsOptions, argv, prog=PROG)
    if not options.folder.is_dir():
        raise ConfigError(f"expected a folder with runs, got {options.folder}")
    records = [read_run(folder) for folder in find_runs(options.folder)]
    if options.json:
        for record in records:
            print(json.dumps({**record._asdict(), "folder": str(record.folder)}))
        return ExitCode.OK
    if not records:
        print(f"no runs in {options.folder}")
        return ExitCode.OK
    print(*table(records, options.folder), sep="\n")
    return ExitCode.OK


def table(records: Sequence[RunRecord], root: Path) -> list[str]:
    """The lines of a table of runs; folders are relative to `root`."""
    rows = [_COLUMNS, *(_cells(record, root) for record in records)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [_line(row, widths).rstrip() for row in rows]


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(
        cell.rjust(width) if name in _NUMBERS else cell.ljust(width)
        for name, cell, width in zip(_COLUMNS, cells, widths, strict=True)
    )


def _cells(record: RunRecord, root: Path) -> tuple[str, ...]:
    folder = record.folder.relative_to(root)
    return (
        str(folder) if folder.parts else str(record.folder),
        record.config or "–",
        "–" if record.seed is None else str(record.seed),
        record.state,
        f"{record.env_steps:,}",
        _score(record.last),
        _score(record.best),
        record.reason,
    )


def _score(mean_return: float | None) -> str:
    return "–" if mean_return is None else f"{mean_return:.4g}"
