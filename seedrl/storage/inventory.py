"""What a folder of checkpoints holds: what is intact, what is damaged, and what is left over."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from seedrl.errors import CheckpointError
from seedrl.storage import checkpoints, manifest
from seedrl.storage.chosen import best_directory
from seedrl.storage.writing import writing

Kind = Literal["checkpoint", "best", "set aside", "left over"]

_ASIDE = re.compile(r"(?:damaged|superseded)-(\d+)-.*")
_LOCK_SECONDS = 10.0


class Entry(NamedTuple):
    """A folder among the checkpoints of a run.

    Attributes:
      path: of it.
      kind: `set aside`: damaged, or of a future that was given up; `left over`: half-written.
      step: updates behind it; -1 for what is left over.
      env_steps: what it says of the run; None if it does not say so, or is damaged.
      num_bytes: of all of its files.
      problem: what is wrong with it, in one line; empty if it is intact.
    """

    path: Path
    kind: Kind
    step: int
    env_steps: int | None
    num_bytes: int
    problem: str


def inventory(workdir: Path) -> list[Entry]:
    """Looks at every file of every checkpoint of a run, oldest first; changes nothing.

    Raises CheckpointError if there is no folder of checkpoints.
    """
    directory = workdir / "checkpoints"
    if not directory.is_dir():
        raise CheckpointError(f"expected checkpoints in {directory}, which does not exist")
    found = [*_entries(directory, "checkpoint"), *_entries(best_directory(workdir), "best")]
    return sorted(found, key=_age)


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
    for directory in {entry.path.parent for entry in entries}:
        with writing(directory, timeout_seconds=_LOCK_SECONDS):
            for entry in entries:
                if entry.path.parent == directory:
                    checkpoints.delete(entry.path)


def _age(entry: Entry) -> tuple[str, int, bool, Path]:
    """Sorts the oldest of a kind first; what was replaced before what has replaced it."""
    return entry.kind, entry.step, entry.path.suffix != ".replaced", entry.path


def _entries(directory: Path, kind: Kind) -> Iterator[Entry]:
    for path in directory.iterdir() if directory.is_dir() else ():
        if not path.is_dir() or path == directory / "best":
            continue
        if match := checkpoints.NAME.fullmatch(path.name):
            problem = manifest.damage(path) or ""
            env_steps = None if problem else _env_steps(path)
            yield Entry(path, kind, int(match[1]), env_steps, _size(path), problem)
        elif match := _ASIDE.fullmatch(path.name):
            problem = manifest.damage(path) or "it was given up"
            yield Entry(path, "set aside", int(match[1]), None, _size(path), problem)
        elif path.name.startswith(checkpoints.TEMPORARY):
            yield Entry(path, "left over", -1, None, _size(path), "it was never whole")


def _env_steps(path: Path) -> int | None:
    try:
        found = json.loads((path / "meta.json").read_bytes())["meta"]["env_steps"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return found if isinstance(found, int) else None


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
