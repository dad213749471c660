"""`seedrl compare RUN... [--against RUN...]`: what runs show together, as in a paper."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from learner.cli.arguments import require_file, write_output
from learner.extras import comparison
from learner.extras.comparison import Comparison, Group, MeasuredRun, group, measure
from seedrl.errors import ConfigError
from seedrl.exit_codes import ExitCode
from seedrl.hints import require_extra
from seedrl.programs.command_line import read
from seedrl.programs.flags import RUN, Mark
from seedrl.run_files import find_runs

PROG = "seedrl compare"


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """Compare runs over seeds, with confidence intervals and learning curves.

    Runs that differ only in their seed form one group. For each group: final scores, and the steps
    and seconds until a return was reached. Only the files of the runs are read.

    Example: seedrl compare runs --against runs/old --output curves.png

    Attributes:
      runs: directories of runs, or of several runs each.
      against: runs to compare with, named as RUN. Each group of RUN is compared with each of
        these groups of the same environment.
      threshold: report when each run first reached this return; by default the runs' target.
      json: print one JSON object instead of text.
      output: PNG file to write the learning curves to.
      force: replace an existing output file.
    """

    runs: Annotated[tuple[Path, ...], RUN]
    against: Annotated[tuple[Path, ...], Mark("RUN")] = ()
    threshold: float | None = None
    json: bool = False
    output: Path | None = None
    force: bool = False


def run(argv: Sequence[str]) -> int:
    options = read(CompareOptions, argv, prog=PROG)
    if not options.runs:
        raise ConfigError(f"RUN: expected directories of runs, got none (see {PROG} --help)")
    require_file("--output", options.output, force=options.force)
    if options.output:
        require_extra("learner")
    found = compare(options.runs, options.against, options.threshold)
    if options.json:
        print(json.dumps(comparison.as_json(found), allow_nan=False))
    else:
        print(*comparison.lines(found), sep="\n")
    if options.output:
        write_output(options.output, comparison.png(found))
        print(f"wrote {options.output}", file=sys.stderr)
    return ExitCode.OK


def compare(
    runs: Sequence[Path], against: Sequence[Path], threshold: float | None = None
) -> Comparison:
    """Reads and compares. Raises ConfigError for what is no run, or cannot be compared."""
    right = _measured(against)
    # A pattern such as runs/* may match the runs of --against, too.
    left = {path: run for path, run in _measured(runs).items() if path not in right}
    if not left:
        raise ConfigError("--against: expected other runs than those before it, got all of them")
    # Together, so that names tell the groups of both sides apart.
    together = group([*left.values(), *right.values()])
    own, others = _of(together, left), _of(together, right)
    return comparison.compare(own, others, threshold)


def _of(groups: Iterable[Group], runs: Mapping[Path, MeasuredRun]) -> list[Group]:
    """The groups with only these runs; those with none are left out."""
    # By identity: two runs may have equal numbers.
    own = {id(run) for run in runs.values()}
    kept = (each._replace(runs=tuple(r for r in each.runs if id(r) in own)) for each in groups)
    return [each for each in kept if each.runs]


def _measured(folders: Sequence[Path]) -> dict[Path, MeasuredRun]:
    """The runs in these folders by path. Raises ConfigError if there is none with a score."""
    found: dict[Path, MeasuredRun] = {}
    for folder in folders:
        inside = list(find_runs(folder))
        if not inside:
            what = "found none" if folder.is_dir() else "but there is no such directory"
            raise ConfigError(f"{folder}: expected the directory of a run or runs, {what}")
        measured = 0
        for each in inside:
            try:
                found[each.resolve()] = measure(each)
                measured += 1
            except ConfigError as error:
                # Others stand for the folder; alone, it is what was asked for.
                if each is inside[-1] and not measured:
                    raise
                print(f"left out: {error}", file=sys.stderr)  # stdout is for the result
    return found
