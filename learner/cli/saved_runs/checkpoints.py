"""`seedrl checkpoints WORKDIR`: lists, verifies and prunes the checkpoints of a run."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from learner.cli.arguments import parse_flags
from learner.saving.folder_lock import check_free
from seedrl.errors import ConfigError
from seedrl.exit_codes import ExitCode
from seedrl.programs import extras

PROG = "seedrl checkpoints"


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


def run(argv: Sequence[str]) -> int:
    """Prints the list, and prunes; returns the exit code."""
    options = parse_flags(CheckpointsOptions, argv, prog=PROG)
    if options.prune is not None and options.prune < 1:
        raise ConfigError(f"--prune: expected at least 1, got {options.prune}")
    extras.require("learner")
    from seedrl.storage.inventory import Entry, inventory, remove, superfluous

    def shown(entry: Entry, removed: bool) -> str:
        if options.json:
            return json.dumps({**entry._asdict(), "path": str(entry.path), "is_removed": removed})
        steps = "" if entry.env_steps is None else f"{entry.env_steps:,} environment steps, "
        what = f"update {entry.step:,}, {steps}" if entry.step >= 0 else ""
        state = "removed" if removed else entry.problem or "intact"
        size = f"{entry.num_bytes / 2**20:.1f} MiB"
        return f"{entry.kind:<10}  {what}{size}, {entry.path}: {state}"

    found = inventory(options.workdir)
    doomed: list[Entry] = []
    if options.prune is not None:
        check_free(options.workdir)
        doomed = superfluous(found, options.prune)
        remove(doomed)
    for entry in found:
        print(shown(entry, entry in doomed))
    if not found and not options.json:
        print(f"no checkpoints in {options.workdir}")
    left = [entry for entry in found if entry not in doomed]
    is_damaged = any(entry.problem for entry in left if entry.kind in ("checkpoint", "best"))
    return ExitCode.UNREADABLE_CHECKPOINT if is_damaged else ExitCode.OK
