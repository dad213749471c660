"""`seedrl bounds CONFIG`: speed of acting alone, of learning alone, and of both."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from learner.cli.arguments import parse_to_measure, require_at_least, require_positive, table
from learner.processes.tuning import require_jax
from seedrl.exit_codes import ExitCode

PROG = "seedrl bounds"
_SIDES = {
    "acting": "acting without learning",
    "learning": "learning without acting",
    "both": "both, the run",
}
_BINDS = {"both": "acting and learning bind alike"}


@dataclass(frozen=True, kw_only=True)
class BoundsOptions:
    """Find the slower side of a run: acting or learning.

    Starts the run that CONFIG describes, with its env servers and without evaluation, and measures
    alternately, all on this machine: acting without learning, learning without acting (on time
    steps stored before), and both. CONFIG may also be the directory of a run.

    Example: seedrl bounds cartpole_r2d2 --seconds 2

    Attributes:
      json: print one JSON object instead of a table.
      seconds: duration of each measurement.
      rounds: repetitions of each measurement.
      allow: code that CONFIG may name, as for `seedrl train`.
    """

    json: bool = False
    seconds: float = 3.0
    rounds: int = 3
    allow: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        require_at_least(self, rounds=1)
        require_positive(self, "seconds")


def run(argv: Sequence[str]) -> int:
    """Prints the bounds; returns the exit code."""
    options, config = parse_to_measure(BoundsOptions, argv, prog=PROG)
    require_jax(starts=False)  # its flags are set below
    # After the checks: what they import takes seconds.
    from rich.console import Console

    from learner.extras.bench.bounds import measure
    from learner.extras.bench.measuring import Pace, machine
    from learner.processes.tuning import tune_process

    tune_process(keeps_freed_memory=config.learning.keep_freed_memory)
    pace = Pace(options.rounds, options.seconds)
    with Console(stderr=True).status(f"{argv[0]}: acting, learning, and both in turn"):
        found = measure(config, pace)
    if options.json:
        measured = {"config": argv[0], "pace": pace._asdict(), "machine": machine()}
        print(json.dumps({**measured, **found}))
    else:
        print(text(found))
    return ExitCode.OK


def text(found: Mapping[str, Any]) -> str:
    """A table, and a sentence about the side that binds; `found` is from `bounds.compared`."""
    from learner.extras.bench.measuring import number

    rows = [("", "steps/s", "lowest..highest", "updates/s", "cores")]
    for side, name in _SIDES.items():
        rates = found[f"{side}_steps_per_second"]
        low, median, high = (number(rates[each]) for each in ("lowest", "median", "highest"))
        updates = number(rates["median"] / found["steps_per_update"])
        cores = number(found[f"{side}_cores"])
        rows.append((name, median, f"{low}..{high}", updates if side != "acting" else "", cores))
    binds, lower = found["binds"], number(found["lower_steps_per_second"]["median"])
    sentence = (
        f"{_BINDS.get(binds, f'{binds} binds').capitalize()}: the run reaches "
        f"{found['of_upper']:.0%} of the slower side, and {found['of_lower']:.0%} of both sides in "
        f"turn on the same cores ({lower} steps/s). A step takes {found['of_processor_time']:.0%} "
        "of the processor time of the two sides apart."
    )
    return "\n".join([*table(rows), "", sentence])
