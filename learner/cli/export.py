"""`seedrl export RUN`: writes a trained policy as one file that needs jax alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from learner.cli.arguments import parse_flags
from seedrl.errors import ConfigError
from seedrl.exit_codes import ExitCode
from seedrl.programs import extras

PROG = "seedrl export"


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """Writes the policy of a run as one file of jax.export, parameters included, for programs that
    have jax but not seedrl; docs/exported_policy.md has its loader of ten lines.

    Attributes:
      workdir: folder of the run.
      output: the file; by default policy.jax in the folder of the run.
      force: replace the file if it exists.
      step: take the checkpoint of that many updates instead of the newest.
      best: take the checkpoint that scored highest in the evaluations of the run.
      epsilon: the agent's exploration; 0 is greedy.
      allow: folders of Python files that the run may name; by default only what is installed.
    """

    workdir: Annotated[Path, tyro.conf.Positional]
    output: Path | None = None
    force: bool = False
    step: int | None = None
    best: bool = False
    epsilon: float = 0.0
    allow: tuple[str, ...] = ()


def run(argv: Sequence[str]) -> int:
    """Writes the file; returns the exit code."""
    options = parse_flags(ExportOptions, argv, prog=PROG)
    if options.best and options.step is not None:
        raise ConfigError("--step and --best: expected one of them, got both")
    output = options.output or options.workdir / "policy.jax"
    if output.exists() and not options.force:
        raise ConfigError(f"--output: {output} exists; choose another file, or add --force")
    extras.require("learner")
    # Imports jax: only once the command line is known to be good.
    from seedrl import policy

    loaded = policy.load(
        options.workdir,
        step=options.step,
        best=options.best,
        epsilon=options.epsilon,
        allow=options.allow,
    )
    content = loaded.export()
    try:
        output.write_bytes(content)
    except OSError as error:
        raise ConfigError(f"--output: cannot write {output}: {error.strerror}") from error
    print(f"{output}: {len(content):,} bytes, after {loaded.step:,} updates")
    return ExitCode.OK
