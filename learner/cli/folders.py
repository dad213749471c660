"""What the folder of a run holds: `seedrl runs`, `checkpoints`, `digest` and `export`."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from learner.checkpoints.run_records import RunRecord, read_run
from learner.cli.arguments import require_file, table
from learner.processes.tuning import require_jax
from learner.report.json_lines import replace_file
from seedrl.errors import CheckpointError, ConfigError
from seedrl.exit_codes import ExitCode
from seedrl.programs.command_line import read
from seedrl.run_files import find_runs

_COLUMNS = ("run", "config", "seed", "state", "steps", "last", "best", "why")


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


@dataclass(frozen=True, kw_only=True)
class CheckpointsOptions:
    """Lists the checkpoints of a run and reads every byte of them: updates, environment steps,
    size, and the damage if there is any; ends with 74 if one is damaged.

    Attributes:
      workdir: folder of the run.
    """

    workdir: Annotated[Path, tyro.conf.Positional]


@dataclass(frozen=True, kw_only=True)
class DigestOptions:
    """Prints the SHA-256 of each part of a run's newest checkpoint, and of all of it. Two runs of
    equal digests have learned the same, to the last bit.

    Attributes:
      workdir: folder of the run.
    """

    workdir: Annotated[Path, tyro.conf.Positional]


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """Writes the policy of a run as one file of jax.export, parameters included, for programs that
    have jax but not seedrl; docs/exported_policy.md has its loader of ten lines.

    Attributes:
      workdir: folder of the run.
      output: the file; by default policy.jax in the folder of the run, which is replaced.
      force: replace an output that is there.
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


def runs(argv: Sequence[str]) -> int:
    options = read(RunsOptions, argv, prog="seedrl runs")
    if not options.folder.is_dir():
        raise ConfigError(f"expected a folder with runs, got {options.folder}")
    records = [read_run(folder) for folder in find_runs(options.folder)]
    if options.json:
        for record in records:
            print(json.dumps({**record._asdict(), "folder": str(record.folder)}))
    else:
        cells = (_cells(record, options.folder) for record in records)
        print(*table([_COLUMNS, *cells]), sep="\n")
    return ExitCode.OK


def _cells(record: RunRecord, root: Path) -> tuple[str, ...]:
    folder = record.folder.relative_to(root)
    scores = (record.last, record.best)
    return (
        str(folder) if folder.parts else str(record.folder),
        record.config or "–",
        "–" if record.seed is None else str(record.seed),
        record.state,
        f"{record.env_steps:,}",
        *("–" if score is None else f"{score:.4g}" for score in scores),
        record.reason,
    )


def checkpoints(argv: Sequence[str]) -> int:
    options = read(CheckpointsOptions, argv, prog="seedrl checkpoints")
    require_jax()
    from seedrl import checkpoints  # imports jax

    directory = options.workdir / "checkpoints"
    if not directory.is_dir():
        raise CheckpointError(f"expected checkpoints in {directory}, which does not exist")
    code = ExitCode.OK
    for path in [*_inside(directory / "best"), *_inside(directory)]:
        if not (match := checkpoints.NAME.fullmatch(path.name)):
            continue
        kind = "best" if path.parent.name == "best" else "checkpoint"
        size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) / 2**20
        steps = ""
        if problem := checkpoints.damage(path):
            code = ExitCode.UNREADABLE_CHECKPOINT
        elif (taken := checkpoints.opened(path).meta.get("env_steps")) is not None:
            steps = f"{taken:,} environment steps, "
        state = f"{size:.1f} MiB, {path}: {problem or 'intact'}"
        print(f"{kind:<10}  update {int(match[1]):,}, {steps}{state}")
    return code


def _inside(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def digest(argv: Sequence[str]) -> int:
    options = read(DigestOptions, argv, prog="seedrl digest")
    require_jax()
    # Imports jax: only once the command line is known to be good.
    from learner.checkpoints.restoring import digests, stored
    from seedrl.checkpoints import latest

    folder = options.workdir / "checkpoints"
    found = latest(folder)
    if found is None:
        raise CheckpointError(f"expected a checkpoint in {folder}, found none")
    print(found.path)
    for part, value in digests(stored(found)).items():
        print(f"{part:<10} {value}")
    return ExitCode.OK


def export(argv: Sequence[str]) -> int:
    options = read(ExportOptions, argv, prog="seedrl export")
    if options.best and options.step is not None:
        raise ConfigError("--step and --best: expected one of them, got both")
    require_file("--output", options.output, force=options.force)
    output = options.output or options.workdir / "policy.jax"
    require_jax()
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
        replace_file(output, content)
    except OSError as error:
        raise ConfigError(f"--output: cannot write {output}: {error.strerror}") from error
    print(f"{output}: {len(content):,} bytes, after {loaded.step:,} updates")
    return ExitCode.OK
