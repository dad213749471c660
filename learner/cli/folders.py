"""What the directory of a run holds: `seedrl runs`, `checkpoints`, `digest` and `export`."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from learner.checkpoints.run_records import RunRecord, read_run
from learner.cli.arguments import require_file, table, write_output
from learner.processes.tuning import require_jax
from seedrl import config_io
from seedrl.errors import CheckpointError, ConfigError
from seedrl.exit_codes import ExitCode
from seedrl.programs.command_line import read
from seedrl.programs.flags import POSITIONAL, RUN
from seedrl.run_files import CONFIG, find_runs
from seedrl.specs import EnvSpec, TokensSpec
from seedrl.types import Tree

_COLUMNS = ("run", "config", "seed", "state", "steps", "last", "best", "why")


@dataclass(frozen=True, kw_only=True)
class RunsOptions:
    """List the runs in a directory, at most three levels deep.

    For each run: configuration, seed, state (running, finished, interrupted or failed, with the
    reason), training environment steps, and the mean returns of the last and of the best
    evaluation. Only the files of the runs are read.

    Example: seedrl runs runs --json

    Attributes:
      directory: directory to search.
      json: print one JSON object instead of text.
    """

    directory: Annotated[Path, POSITIONAL] = Path("runs")
    json: bool = False


@dataclass(frozen=True, kw_only=True)
class CheckpointsOptions:
    """List and verify the checkpoints of a run.

    Reads every byte and prints updates, environment steps, size, and any damage. Exit code 74 if a
    checkpoint is damaged.

    Example: seedrl checkpoints runs/pong

    Attributes:
      workdir: directory of the run.
    """

    workdir: Annotated[Path, RUN]


@dataclass(frozen=True, kw_only=True)
class DigestOptions:
    """Print SHA-256 sums of a run's newest checkpoint, for each part and in total.

    Two runs with equal sums have learned exactly the same parameters.

    Example: seedrl digest runs/pong

    Attributes:
      workdir: directory of the run.
    """

    workdir: Annotated[Path, RUN]


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """Write a policy, with its parameters, as one file that needs only jax and flatbuffers.

    Programs load the file by jax.export.deserialize.

    Example: seedrl export runs/pong --best --output pong.jax

    Attributes:
      workdir: directory of the run.
      output: file to write; by default policy.jax in the run's directory; an existing
        policy.jax is replaced.
      safetensors: directory to write the network of a token policy to, in place of that file, as
        Hugging Face's Llama reads it (model.safetensors and config.json); LoRA is merged.
      force: replace existing output.
      update: export the checkpoint of this update; by default the newest.
      best: export the checkpoint with the highest score in the run's evaluations.
      epsilon: exploration rate; 0 is greedy.
      allow: directories of Python files that the run may name; by default only installed code.
    """

    workdir: Annotated[Path, RUN]
    output: Path | None = None
    safetensors: Path | None = None
    force: bool = False
    update: int | None = None
    best: bool = False
    epsilon: float = 0.0
    allow: tuple[str, ...] = ()


def runs(argv: Sequence[str]) -> int:
    options = read(RunsOptions, argv, prog="seedrl runs")
    if not options.directory.is_dir():
        raise ConfigError(f"expected a directory with runs, got {options.directory}")
    # Files only: a learner may be at work there.
    records = [read_run(folder) for folder in find_runs(options.directory)]
    if options.json:
        rows = [{**record._asdict(), "folder": str(record.folder)} for record in records]
        print(json.dumps({"runs": rows}, indent=2))
    else:
        cells = (_cells(record, options.directory) for record in records)
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
        raise CheckpointError(
            f"expected the directory of a run, got {options.workdir}, which has no checkpoints"
        )
    code = ExitCode.OK
    # As they are on disk: `latest` would leave out damaged ones, which are what is looked for.
    best = checkpoints.best_directory(options.workdir)
    for step, path in [*checkpoints.listed(best), *checkpoints.listed(directory)]:
        state, steps = "intact", ""
        try:
            taken = checkpoints.verified(path).meta.get("env_steps")
            steps = "" if taken is None else f"{taken:,} environment steps, "
        except checkpoints.DamagedError as error:
            if not path.is_dir():  # a learner that is running has deleted it
                continue
            state, code = str(error), ExitCode.UNREADABLE_CHECKPOINT
        kind = "best" if path.parent == best else "checkpoint"
        size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) / 2**20
        print(f"{kind:<10}  update {step:,}, {steps}{size:.1f} MiB, {path}: {state}")
    return code


def digest(argv: Sequence[str]) -> int:
    options = read(DigestOptions, argv, prog="seedrl digest")
    require_jax()
    # Imports jax: only once the command line is known to be good.
    from learner.checkpoints.restoring import digests
    from seedrl import checkpoints
    from seedrl.stored_arrays import read_all

    path, arrays = checkpoints.read(
        options.workdir, lambda found: (found.path, read_all(found.path))
    )
    print(path)  # which of them, because the newest one may be damaged
    for part, value in digests(arrays).items():
        print(f"{part:<10} {value}")
    return ExitCode.OK


def export(argv: Sequence[str]) -> int:
    options = read(ExportOptions, argv, prog="seedrl export")
    if options.best and options.update is not None:
        raise ConfigError("--update and --best: expected one of them, got both")
    if options.output and options.safetensors:
        raise ConfigError("--output and --safetensors: expected one of them, got both")
    require_file("--output", options.output, force=options.force)
    if (folder := options.safetensors) is not None and folder.exists() and not options.force:
        raise ConfigError(f"--safetensors: {folder} is there already; --force replaces its files")
    # A policy.jax of the run is made from it, so it may be replaced without --force.
    output = options.output or options.workdir / "policy.jax"
    require_jax()
    # Imports jax: only once the command line is known to be good.
    from seedrl import policy

    # As a program of the user's loads it: what is exported is what it would play.
    loaded = policy.load(
        options.workdir,
        step=options.update,
        best=options.best,
        epsilon=options.epsilon,
        allow=options.allow,
    )
    if folder is not None:
        _write_network(options.workdir, loaded.params, loaded.spec, folder)
        print(f"{folder}: weights after {loaded.step:,} updates")
        return ExitCode.OK
    # First: what cannot be exported replaces no file.
    content = loaded.export()
    write_output(output, content)
    print(f"{output}: {len(content):,} bytes, after {loaded.step:,} updates")
    return ExitCode.OK


def _write_network(workdir: Path, params: Tree, spec: EnvSpec, folder: Path) -> None:
    from seedrl.networks import weights

    config = config_io.load(workdir / CONFIG)
    if not isinstance(spec.action, TokensSpec):
        kind = type(config.agent).__name__
        raise ConfigError(f"--safetensors: expected a token policy (GRPOConfig), got a {kind}")
    try:
        weights.write(folder, config.agent.network, params, spec.action.end)
    except OSError as error:
        raise ConfigError(f"--safetensors: cannot write {folder}: {error.strerror}") from error
