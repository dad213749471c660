"""`seedrl experiment GRID`: trains a grid of configurations, options and seeds on this machine."""

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from learner.checkpoints.run_records import read_final_score, read_run
from learner.cli import train
from learner.cli.arguments import require_at_least, table
from learner.extras.experiment import Experiment, Outcome, Runs, check_same, read_grid
from learner.processes.locks import lock
from learner.processes.stop import stop_on_signals
from learner.processes.tuning import require_jax
from learner.report.output import tolerating_lost_output
from learner.report.terminal import score
from seedrl.errors import ConfigError
from seedrl.exit_codes import ExitCode
from seedrl.programs.command_line import read
from seedrl.programs.flags import POSITIONAL

PROG = "seedrl experiment"


@dataclass(frozen=True, kw_only=True)
class ExperimentOptions:
    """Train a grid of configurations, options and seeds on this machine.

    Each run is trained as by `seedrl train`, then evaluated for its final score. The same command
    again resumes: it skips finished runs, resumes unfinished runs, and retries failed ones. Ctrl-C
    saves all runs.

    Example: seedrl experiment my_grid.toml --workers 2

    Attributes:
      grid: TOML file with `configs`, `seeds`, `options` for all runs, and values to `vary`.
      workers: number of runs at a time.
      workdir: directory of the experiment, with a subdirectory for each run; by default runs/GRID.
      episodes: number of episodes for each final score.
      dry_run: print the commands of the runs, one a line, without training.
    """

    grid: Annotated[Path, POSITIONAL]
    workers: int = 1
    workdir: Path | None = None
    episodes: int = 100
    dry_run: bool = False

    def __post_init__(self) -> None:
        require_at_least(self, workers=1, episodes=1)


def run(argv: Sequence[str]) -> int:
    options = read(ExperimentOptions, argv, prog=PROG)
    require_jax(starts=False)
    runs = checked_runs(options.grid)
    folder = options.workdir or Path("runs") / options.grid.stem
    for name, planned in runs.items():
        check_same(folder / name, planned, train.read(planned)[1])
    if options.dry_run:
        for name, planned in runs.items():
            words = ["seedrl", "train", *planned, "--workdir", str(folder / name)]
            print(shlex.join(words))
        return ExitCode.OK
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--workdir: cannot write in {folder} ({error.strerror})") from error
    # Two experiments in one folder would start each run twice.
    descriptor = lock(folder)
    try:
        experiment = Experiment(folder, runs, number=options.workers, episodes=options.episodes)
        # Runs go on when the terminal is gone; the first signal saves them.
        with tolerating_lost_output(), stop_on_signals() as stop:
            code = experiment.work(stop.is_set)
            print(*table(_rows(folder, experiment.outcomes)), sep="\n", flush=True)
            return code
    finally:
        os.close(descriptor)


def checked_runs(grid: Path) -> Runs:
    """The runs of a grid, whose configurations work. Raises ConfigError, in one line."""
    runs = read_grid(grid)
    for name, words in runs.items():
        try:
            train.plan(train.read(words)[1])
        except ConfigError as error:
            raise ConfigError(f"{grid}: {name}: {error}") from error
    return runs


def _rows(folder: Path, outcomes: Mapping[str, Outcome]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("run", "state", "steps", "last", "final", "why")]
    for name, (state, reason) in outcomes.items():
        record, final = read_run(folder / name), read_final_score(folder / name)
        scores = (record.last, None if final is None else final.mean)
        shown = ("–" if value is None else score(value) for value in scores)
        why = reason or (record.reason if state == "finished" else "")
        rows.append((name, state, f"{record.env_steps:,}", *shown, why))
    return rows
