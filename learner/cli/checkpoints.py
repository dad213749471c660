"""`seedrl checkpoints WORKDIR`: lists and verifies the checkpoints of a run."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import tyro

from learner.cli.arguments import parse_flags
from seedrl.errors import CheckpointError
from seedrl.exit_codes import ExitCode
from seedrl.programs import extras

PROG = "seedrl checkpoints"


@dataclass(frozen=True, kw_only=True)
class CheckpointsOptions:
    """Lists the checkpoints of a run and reads every byte of them: updates, environment steps,
    size, and the damage if there is any; ends with 74 if one is damaged.

    Attributes:
      workdir: folder of the run.
      json: print one JSON object a line.
    """

    workdir: Annotated[Path, tyro.conf.Positional]
    json: bool = False


class Entry(NamedTuple):
    """A checkpoint of a run.

    Attributes:
      path: its folder.
      kind: `checkpoint`, or `best`.
      step: number of updates before it.
      env_steps: environment steps of the run; None if it is damaged or records none.
      num_bytes: of all of its files.
      problem: the damage in one line; empty if it is intact.
    """

    path: Path
    kind: str
    step: int
    env_steps: int | None
    num_bytes: int
    problem: str


def run(argv: Sequence[str]) -> int:
    """Prints the list; returns the exit code."""
    options = parse_flags(CheckpointsOptions, argv, prog=PROG)
    extras.require("learner")
    found = inventory(options.workdir)
    for entry in found:
        print(
            json.dumps({**entry._asdict(), "path": str(entry.path)})
            if options.json
            else _text(entry)
        )
    if not found and not options.json:
        print(f"no checkpoints in {options.workdir}")
    is_damaged = any(entry.problem for entry in found)
    return ExitCode.UNREADABLE_CHECKPOINT if is_damaged else ExitCode.OK


def inventory(workdir: Path) -> list[Entry]:
    """Verifies every file of every checkpoint of a run, oldest first; changes nothing.

    Raises CheckpointError if there is no folder of checkpoints.
    """
    directory = workdir / "checkpoints"
    if not directory.is_dir():
        raise CheckpointError(f"expected checkpoints in {directory}, which does not exist")
    return [*_entries(directory / "best", "best"), *_entries(directory, "checkpoint")]


def _entries(directory: Path, kind: str) -> Iterator[Entry]:
    from seedrl import checkpoints, sums  # imports jax

    for path in sorted(directory.iterdir()) if directory.is_dir() else ():
        if match := checkpoints.NAME.fullmatch(path.name):
            size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
            problem = sums.damage(path) or ""
            env_steps = None if problem else checkpoints.opened(path).meta.get("env_steps")
            yield Entry(path, kind, int(match[1]), env_steps, size, problem)


def _text(entry: Entry) -> str:
    steps = "" if entry.env_steps is None else f"{entry.env_steps:,} environment steps, "
    size = f"{entry.num_bytes / 2**20:.1f} MiB"
    state = entry.problem or "intact"
    return f"{entry.kind:<10}  update {entry.step:,}, {steps}{size}, {entry.path}: {state}"
