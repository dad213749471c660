"""`seedrl bounds CONFIG`: speed of acting alone, of learning alone, and of both."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from learner.cli.arguments import parse_to_measure, require_at_least, require_positive, table
from learner.processes.tuning import require_jax
from seedrl.exit_codes import ExitCode

PROG = "seedrl bounds"
_SIDES = {
    "acting": "acting without learning",
    "learning": "learning without acting",
    "both": "both, the run",
}
_EQUAL = 1.05  # two sides that differ by less are equal


@dataclass(frozen=True, kw_only=True)
class BoundsOptions:
    """Find the slower side of a run: acting or learning.

    Starts the run that CONFIG describes, with its env servers and without evaluation, and measures
    alternately, all on this machine: acting without learning, learning without acting (on time
    steps stored before), and both. CONFIG may also be the directory of a run.

    Example: seedrl bounds cartpole_r2d2 --seconds 2

    Attributes:
      seconds: duration of each measurement.
      rounds: repetitions of each measurement.
      allow: code that CONFIG may name, as for `seedrl train`.
    """

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

    from learner.extras.bench.bounds import measure, rates
    from learner.extras.bench.measuring import Pace
    from learner.processes.tuning import tune_for

    tune_for(config)
    with Console(stderr=True).status(f"{argv[0]}: acting, learning, and both in turn"):
        intervals, update_steps = measure(config, Pace(options.rounds, options.seconds))
    print(text(rates(intervals, update_steps), update_steps))
    return ExitCode.OK


def text(rates: Mapping[str, Sequence[float]], update_steps: float) -> str:
    """A table of steps/s by side, a number a round, and a sentence about the side that binds."""
    from learner.extras.bench.measuring import number, ratios, spread

    rows = [("", "steps/s", "lowest..highest", "updates/s")]
    for side, name in _SIDES.items():
        median, low, high = spread(rates[side])
        updates = number(median / update_steps) if side != "acting" else ""
        rows.append((name, number(median), f"{number(low)}..{number(high)}", updates))
    # Round by round: only the numbers of one round saw the same machine.
    sides = list(zip(rates["acting"], rates["learning"], strict=True))
    ratio = spread(ratios(rates["acting"], rates["learning"])).median
    reached = spread(ratios(rates["both"], [min(pair) for pair in sides])).median
    binds = "acting" if ratio < 1 else "learning"
    is_equal = 1 / _EQUAL <= ratio <= _EQUAL
    sentence = (
        f"{'Acting and learning bind alike' if is_equal else f'{binds.capitalize()} binds'}: the "
        f"run reaches {reached:.0%} of the slower side."
    )
    return "\n".join([*table(rows), "", sentence])
