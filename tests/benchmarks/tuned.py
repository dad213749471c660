"""Is a profile of `seedrl tune` as fast as the best of a grid? `python -m tests.benchmarks.tuned`.

Takes twelve minutes on two quiet cores; names of cases choose. Each case is an environment of
another cost. `seedrl tune` searches for 90 s; then each cell of a grid is measured in turn with its
profile. The largest of 24 noisy numbers is too large, so the three fastest cells are measured again
in turn with the profile, and only those rounds count.
"""

import contextlib
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from learner.cli.arguments import parse_to_measure, table
from learner.cli.tune import TuneOptions
from learner.extras.bench.measuring import interleave, ratios
from learner.extras.tune import Setting, running, setting_of
from learner.processes.tuning import tune_process
from seedrl.config import check
from seedrl.errors import ConfigError
from seedrl.fields import with_fields
from seedrl.programs.command_line import read
from seedrl.programs.flags import POSITIONAL

PROG = "python -m tests.benchmarks.tuned"
_LEAST = 0.95
_MOST_SECONDS = 90.0
_SEARCH_SECONDS = 85.0  # the rest is for starting the command
_GROUPS = (1, 2)
_FINALISTS = 3


@dataclass(frozen=True, kw_only=True)
class Case:
    """An environment, and the grid: each number of env servers, environments and groups."""

    words: str  # CONFIG and options
    env_servers: tuple[int, ...]
    environments: tuple[int, ...]

    def cells(self, deadline: float) -> Iterator[Setting]:
        for cell in itertools.product(self.env_servers, self.environments, _GROUPS):
            yield Setting(*cell, deadline)


CASES = {
    "CartPole": Case(words="cartpole_impala", env_servers=(1, 2, 4), environments=(8, 16, 32, 64)),
    "10 ms": Case(
        words="cartpole_r2d2 --environment.wrappers envs_server.envs.slowed:by_10_ms",
        env_servers=(2, 4, 8),
        environments=(2, 4, 8, 16),
    ),
}


class Cell(NamedTuple):
    """A cell that runs."""

    setting: Setting
    ratio: float  # of the profile's steps/s to its own
    rate: Callable[[float], float]
    stack: contextlib.ExitStack


def profile_of(case: Case, folder: Path) -> tuple[dict[str, Any], float]:
    """The fields that `seedrl tune` has found, and the seconds that it took."""
    path, start = folder / "profile.json", time.monotonic()
    words = [*case.words.split(), "--output", str(path), "--force"]
    words += ["--total-seconds", str(_SEARCH_SECONDS)]
    words += ["--most-env-servers", str(max(case.env_servers))]
    subprocess.run([sys.executable, "-m", "learner.cli.main", "tune", *words], check=True)
    return json.loads(path.read_text()), time.monotonic() - start


def measured(case: Case, seconds: float, rounds: int, folder: Path) -> dict[str, Any]:
    """The profile of a case against the grid."""
    profile, tune_seconds = profile_of(case, folder)
    _, config = parse_to_measure(TuneOptions, case.words.split(), prog=PROG)
    tuned = setting_of(with_fields(config, profile))
    grid: dict[Setting, float | None] = {}  # the profile's steps/s relative to each cell's
    best: list[Cell] = []
    with contextlib.ExitStack() as stack:
        own = stack.enter_context(running(config, tuned))

        def in_turn(cells: Mapping[Setting, Callable[[float], float]], rounds: int) -> list[float]:
            # Of each cell the median over the rounds, each of which has the profile once.
            rates = [own, *cells.values()]
            measures = {str(n): lambda rate=rate: rate(seconds) for n, rate in enumerate(rates)}
            profile, *others = interleave(measures, rounds).values()
            return [statistics.median(ratios(profile, other)) for other in others]

        for setting in case.cells(config.serving.batch_deadline_seconds):
            one = stack.enter_context(contextlib.ExitStack())
            try:
                check(setting.applied(config))  # with as much in replay as a run needs
                rate = one.enter_context(running(config, setting))
            except ConfigError:
                grid[setting] = None  # it cannot run
                continue
            (ratio,) = in_turn({setting: rate}, 2)
            grid[setting] = ratio
            print(f"  {ratio:.2f} of {_text(setting)}", flush=True)
            # They go on running for the last rounds, and cost nothing meanwhile.
            best = sorted([*best, Cell(setting, ratio, rate, one)], key=lambda cell: cell.ratio)
            for cell in best[_FINALISTS:]:
                cell.stack.close()
            best = best[:_FINALISTS]
        finals = in_turn({cell.setting: cell.rate for cell in best}, rounds)
    return {
        "tune_seconds": tune_seconds,
        "profile": tuned._asdict(),
        "grid": [{**setting._asdict(), "profile": ratio} for setting, ratio in grid.items()],
        "finalists": [
            {**cell.setting._asdict(), "profile": ratio}
            for cell, ratio in zip(best, finals, strict=True)
        ],
        "of_best": min(finals),
    }


def _text(cell: Setting | Mapping[str, Any]) -> str:
    found = cell._asdict() if isinstance(cell, Setting) else cell
    number, each, groups = (found[name] for name in ("env_servers", "environments", "groups"))
    return f"{number} env servers of {each} environments in {groups} groups"


def lines(found: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """The fastest cells of each case, and a verdict for each line of the issue."""
    rows = [("environment", "setting", "profile relative to it")]
    for name, each in found.items():
        rows.append((name, f"profile: {_text(each['profile'])}", ""))
        rows += [(name, _text(cell), f"{cell['profile']:.2f}") for cell in each["finalists"]]
    yield from table(rows)
    for name, each in found.items():
        share, took = each["of_best"], each["tune_seconds"]
        word = "met" if share >= _LEAST else "MISSED"
        yield f"{word}: {name}: the profile has {share:.2f} of the best cell (at least {_LEAST})"
        word = "met" if took <= _MOST_SECONDS else "MISSED"
        yield f"{word}: {name}: tune took {took:.0f} s (at most {_MOST_SECONDS:.0f})"


@dataclass(frozen=True, kw_only=True)
class TunedOptions:
    """Compare what `seedrl tune` finds with a grid of settings.

    Attributes:
      names: cases; by default all.
      seconds: duration of each measurement.
      rounds: of the fastest cells.
      output: JSON file to write.
    """

    names: Annotated[tuple[str, ...], POSITIONAL] = ()
    seconds: float = 1.0
    rounds: int = 7
    output: Path | None = None


def main(options: TunedOptions) -> int:
    found: dict[str, dict[str, Any]] = {}
    tune_process(keeps_freed_memory=False)
    with tempfile.TemporaryDirectory(prefix="seedrl-tuned-") as folder:
        for name in options.names or CASES:
            found[name] = measured(CASES[name], options.seconds, options.rounds, Path(folder))
            if options.output is not None:
                options.output.write_text(json.dumps(found, indent=1))
    print(*lines(found), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(read(TunedOptions, None, prog=PROG)))
