"""`seedrl tune CONFIG`: settings that are fast on this machine, as a profile for `seedrl train`."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from learner.cli.arguments import (
    parse_to_measure,
    require_at_least,
    require_file,
    require_positive,
    write_output,
)
from learner.cli.balance import require_overlap
from learner.processes.tuning import require_jax
from seedrl.exit_codes import ExitCode

if TYPE_CHECKING:  # imports jax
    from learner.extras.tune import Setting

PROG = "seedrl tune"


@dataclass(frozen=True, kw_only=True)
class TuneOptions:
    """Find env servers, environments, groups and a batch deadline that are fast on this machine.

    Changes one setting at a time and keeps it if it is at least 3 % faster, measured alternately
    with the best one so far. Replay ratio and batch stay as they are. More environments also raise
    the default bound of the policy lag of IMPALA and PPO, replay.max-lag-updates. CONFIG may
    also be the directory of a run.

    Example: seedrl tune pong_r2d2 --output pong.json

    Attributes:
      output: JSON file to write the profile to. After Ctrl-C it holds the best setting so far.
      force: replace an existing output file.
      total_seconds: time for all settings. It ends before a setting that, if it took as long as
        the slowest so far, would exceed this time.
      seconds: duration of each measurement.
      rounds: repetitions of each measurement.
      most_env_servers: largest number of env servers to start.
      allow: code that CONFIG may name, as for `seedrl train`.
    """

    output: Path | None = None
    force: bool = False
    total_seconds: float = 90.0
    seconds: float = 1.0
    rounds: int = 3
    most_env_servers: int = 32
    allow: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        require_at_least(self, rounds=1, most_env_servers=1)
        require_positive(self, "seconds", "total_seconds")


def run(argv: Sequence[str]) -> int:
    """Prints each setting that is tried; returns the exit code."""
    options, config = parse_to_measure(TuneOptions, argv, prog=PROG)
    require_overlap(config)
    require_file("--output", options.output, force=options.force)
    require_jax(starts=False)
    # After the checks: what they import takes seconds.
    from learner.extras.bench.measuring import Pace
    from learner.extras.tune import setting_of, tune
    from learner.processes.tuning import tune_for

    tune_for(config)
    best, gain = setting_of(config), 1.0
    print(f"{'as it is':<16}{_text(best)}", flush=True)
    for move in tune(
        config,
        Pace(options.rounds, options.seconds),
        seconds=options.total_seconds,
        most_env_servers=options.most_env_servers,
    ):
        result = "unmeasured" if move.error else f"{move.gain:+.0%}"
        why = f": {move.error}" if move.error else ""
        print(f"{result:<11}{'kept' * move.is_kept:<5}{_text(move.setting)}{why}", flush=True)
        if move.is_kept:
            best, gain = move.setting, gain * (1 + move.gain)
            _write(options.output, best)  # now: Ctrl-C may end the search
    print(f"expected: {gain - 1:+.0%} steps/s with {_text(best)}")
    _write(options.output, best)
    if options.output is not None:
        print(f"wrote {options.output}: use it with seedrl train CONFIG --profile")
    return ExitCode.OK


def _write(path: Path | None, setting: "Setting") -> None:
    if path is not None:
        write_output(path, json.dumps(setting.fields(), indent=2) + "\n")


def _text(setting: "Setting") -> str:
    return (
        f"{setting.env_servers} env servers of {setting.environments} environments in "
        f"{setting.groups} groups, batch deadline {1e3 * setting.batch_deadline_seconds:g} ms"
    )
