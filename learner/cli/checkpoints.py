"""`seedrl checkpoints WORKDIR`: lists, verifies and prunes the checkpoints of a run."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import tyro

from learner.cli.arguments import parse_flags
from learner.saving.folder_lock import check_free
from seedrl.errors import CheckpointError, ConfigError
from seedrl.exit_codes import ExitCode
from seedrl.programs import extras

PROG = "seedrl checkpoints"

_ASIDE = re.compile(r"(?:damaged|superseded)-(\d+)-.*")


@dataclass(frozen=True, kw_only=True)
class CheckpointsOptions:
    """Lists the checkpoints of a run and looks at every byte of them: updates, environment steps,
    size, and what is wrong with one that is damaged; ends with 74 if one is.

    Attributes:
      workdir: folder of the run.
      prune: remove all but the newest N intact ones and the best one: older ones, damaged ones, and
        what was set aside or left over; not while a learner uses the run.
      json: print one JSON object a line.
    """

    workdir: Annotated[Path, tyro.conf.Positional]
    prune: int | None = None
    json: bool = False


class Entry(NamedTuple):
    """A folder among the checkpoints of a run.

    Attributes:
      path: of it.
      kind: `set aside`: damaged, or of a future that was given up; `left over`: half-written.
      step: updates behind it; -1 for what is left over.
      env_steps: what it records of the run; None if it has none, or is damaged.
      num_bytes: of all of its files.
      problem: what is wrong with it, in one line; empty if it is intact.
    """

    path: Path
    kind: Literal["checkpoint", "best", "set aside", "left over"]
    step: int
    env_steps: int | None
    num_bytes: int
    problem: str

    @property
    def age(self) -> tuple[str, int, bool, Path]:
        """Sorts the oldest of a kind first; a replaced one before its successor."""
        return self.kind, self.step, self.path.suffix != ".replaced", self.path


def run(argv: Sequence[str]) -> int:
    """Prints the list, and prunes; returns the exit code."""
    options = parse_flags(CheckpointsOptions, argv, prog=PROG)
    if options.prune is not None and options.prune < 1:
        raise ConfigError(f"--prune: expected at least 1, got {options.prune}")
    extras.require("learner")
    found = inventory(options.workdir)
    doomed: list[Entry] = []
    if options.prune is not None:
        check_free(options.workdir)
        doomed = superfluous(found, options.prune)
        remove(doomed)
    for entry in found:
        print(_shown(entry, is_removed=entry in doomed, as_json=options.json))
    if not found and not options.json:
        print(f"no checkpoints in {options.workdir}")
    left = [entry for entry in found if entry not in doomed]
    is_damaged = any(entry.problem for entry in left if entry.kind in ("checkpoint", "best"))
    return ExitCode.UNREADABLE_CHECKPOINT if is_damaged else ExitCode.OK


def inventory(workdir: Path) -> list[Entry]:
    """Verifies every file of every checkpoint of a run, oldest first; changes nothing.

    Raises CheckpointError if there is no folder of checkpoints.
    """
    directory = workdir / "checkpoints"
    if not directory.is_dir():
        raise CheckpointError(f"expected checkpoints in {directory}, which does not exist")
    found = [*_entries(directory, "checkpoint"), *_entries(directory / "best", "best")]
    return sorted(found, key=lambda entry: entry.age)


def superfluous(entries: list[Entry], keep: int) -> list[Entry]:
    """What a run can do without: all but its newest `keep` intact checkpoints and its best one.

    Raises CheckpointError if there is not one that could be kept.
    """
    intact = [entry for entry in entries if entry.kind == "checkpoint" and not entry.problem]
    best = [entry for entry in entries if entry.kind == "best" and not entry.problem]
    if not intact and not best:
        raise CheckpointError(
            "expected an intact checkpoint to keep, found none; nothing is removed"
        )
    # Of a step that was saved twice the last: a kill may have left the replaced one beside it.
    newest = {entry.step: entry for entry in intact}
    kept = {entry.path for entry in (*list(newest.values())[-keep:], *best[-1:])}
    return [entry for entry in entries if entry.path not in kept]


def remove(entries: list[Entry]) -> None:
    """Removes them. Raises CheckpointError if a process is saving there."""
    from seedrl import checkpoints  # imports jax

    for directory in {entry.path.parent for entry in entries}:
        with checkpoints.writing(directory, seconds=10.0):
            for entry in entries:
                if entry.path.parent == directory:
                    checkpoints.delete(entry.path)


def _entries(directory: Path, kind: Literal["checkpoint", "best"]) -> Iterator[Entry]:
    from seedrl import checkpoints, sums  # imports jax

    for path in directory.iterdir() if directory.is_dir() else ():
        size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        if match := checkpoints.NAME.fullmatch(path.name):
            problem, env_steps = sums.damage(path) or "", None
            if not problem:
                env_steps = checkpoints.opened(path).meta.get("env_steps")
            yield Entry(path, kind, int(match[1]), env_steps, size, problem)
        elif match := _ASIDE.fullmatch(path.name):
            yield Entry(path, "set aside", int(match[1]), None, size, "it was set aside")
        elif path.name in (checkpoints.SAVING, checkpoints.DELETED):
            yield Entry(path, "left over", -1, None, size, "it was never whole")


def _shown(entry: Entry, *, is_removed: bool, as_json: bool) -> str:
    if as_json:
        return json.dumps({**entry._asdict(), "path": str(entry.path), "is_removed": is_removed})
    steps = "" if entry.env_steps is None else f"{entry.env_steps:,} environment steps, "
    what = f"update {entry.step:,}, {steps}" if entry.step >= 0 else ""
    state = "removed" if is_removed else entry.problem or "intact"
    size = f"{entry.num_bytes / 2**20:.1f} MiB"
    return f"{entry.kind:<10}  {what}{size}, {entry.path}: {state}"
