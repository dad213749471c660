"""`seedrl compare RUN... [--against RUN...]`: what runs show together, as in a paper."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from learner.cli.arguments import require_file
from learner.extras import comparison
from learner.extras.comparison import Comparison, Group, MeasuredRun, group, measure
from seedrl.errors import ConfigError, require_extra
from seedrl.exit_codes import ExitCode
from seedrl.programs.command_line import read
from seedrl.run_files import find_runs

PROG = "seedrl compare"


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """Compares runs from their files alone. Runs that differ in their seed alone are one group; of
    each: final scores, when a return was reached, area under the learning curve, and pace.

    Attributes:
      runs: folders of runs, or of several runs each.
      against: likewise: each group of `runs` is compared with each of these that plays the same.
      threshold: the return of which is said when it was reached; by default the target of the runs.
      json: print one JSON object.
      png: file to write the learning curves to.
      force: replace files that are there.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    against: tuple[Path, ...] = ()
    threshold: float | None = None
    json: bool = False
    png: Path | None = None
    force: bool = False


def run(argv: Sequence[str]) -> int:
    options = read(CompareOptions, argv, prog=PROG)
    if not options.runs:
        raise ConfigError(f"RUNS: expected folders of runs, got none (see {PROG} --help)")
    require_file("--png", options.png, force=options.force)
    if options.png:
        require_extra("learner")
    found = compare(options.runs, options.against, options.threshold)
    if options.json:
        print(json.dumps(comparison.as_json(found), allow_nan=False))
    else:
        print(*comparison.lines(found), sep="\n")
    if options.png:
        _write("--png", options.png, comparison.png(found))
    return ExitCode.OK


def compare(
    runs: Sequence[Path], against: Sequence[Path], threshold: float | None = None
) -> Comparison:
    """Reads and compares. Raises ConfigError for what is no run, or cannot be compared."""
    right = _measured(against)
    left = {path: run for path, run in _measured(runs).items() if path not in right}
    if not left:
        raise ConfigError("--against: expected other runs than those before it, got all of them")
    # Together, so that names tell the groups of both sides apart.
    together = group([*left.values(), *right.values()])
    own, others = _of(together, left), _of(together, right)
    return comparison.compare(own, others, threshold)


def _of(groups: Iterable[Group], runs: Mapping[Path, MeasuredRun]) -> list[Group]:
    """The groups with only these runs; those with none are left out."""
    own = {id(run) for run in runs.values()}
    kept = (each._replace(runs=tuple(r for r in each.runs if id(r) in own)) for each in groups)
    return [each for each in kept if each.runs]


def _measured(folders: Sequence[Path]) -> dict[Path, MeasuredRun]:
    """The runs in these folders by path. Raises ConfigError if there is none with a score."""
    found: dict[Path, MeasuredRun] = {}
    for folder in folders:
        inside = list(find_runs(folder))
        if not inside:
            what = "found none" if folder.is_dir() else "but there is no such folder"
            raise ConfigError(f"{folder}: expected the folder of a run or runs, {what}")
        measured = 0
        for each in inside:
            try:
                found[each.resolve()] = measure(each)
                measured += 1
            except ConfigError as error:
                # Others stand for the folder; alone, it is what was asked for.
                if each is inside[-1] and not measured:
                    raise
                print(f"left out: {error}", file=sys.stderr)
    return found


def _write(flag: str, path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise ConfigError(f"{flag}: cannot write {path}: {error.strerror}") from error
    print(f"wrote {path}", file=sys.stderr)
