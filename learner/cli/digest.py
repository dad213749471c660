"""`seedrl digest WORKDIR`: SHA-256 over what the newest checkpoint of a run holds."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from learner.cli.arguments import parse_flags
from seedrl.errors import CheckpointError
from seedrl.exit_codes import ExitCode

PROG = "seedrl digest"


@dataclass(frozen=True, kw_only=True)
class DigestOptions:
    """Prints the SHA-256 of each part of a run's newest checkpoint, and of all of it. Two runs of
    equal digests have learned the same, to the last bit.

    Attributes:
      workdir: folder of the run.
    """

    workdir: Annotated[Path, tyro.conf.Positional]


def run(argv: Sequence[str]) -> int:
    """Prints the digests; returns the exit code."""
    options = parse_flags(DigestOptions, argv, prog=PROG)
    # Imports jax: only once the command line is known to be good.
    from learner.checkpoints.digest import digests, stored
    from seedrl import checkpoints

    folder = options.workdir / "checkpoints"
    found = checkpoints.latest(folder)
    if found is None:
        raise CheckpointError(f"expected a checkpoint in {folder}, found none")
    print(found.path)
    for part, digest in digests(stored(found)).items():
        print(f"{part:<10} {digest}")
    return ExitCode.OK
