"""Is the saturation point of a bundled configuration as predicted?

`python -m tests.benchmarks.saturated` takes 15 minutes on two quiet cores; names of cases choose.

What `seedrl balance` does, for steps that are 0, 1, 10 and 50 ms longer, each with a configuration
that few enough env servers saturate: their number grows with the milliseconds. The JSON file has
the costs of a step and all points, so that a wrong prediction can be explained.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from learner.cli.arguments import parse_to_measure, table
from learner.cli.balance import BalanceOptions
from learner.extras.balance import measure
from learner.extras.bench.measuring import Pace
from learner.processes.tuning import tune_process
from learner.report.balance import capacities, steps_per_second
from seedrl.programs.command_line import read
from seedrl.programs.flags import POSITIONAL

PROG = "python -m tests.benchmarks.saturated"
_MOST_ERROR, _MOST_OF_THREE = 0.15, 0.10
# By milliseconds: CONFIG and options.
CASES = {
    "0": "cartpole_r2d2",
    "1": "cartpole_r2d2",
    "10": "pong_r2d2",
    # Learning takes four times as long: a quarter of the env servers. Fewer environments in each
    # fill the replay sooner.
    "50": "pong_r2d2 --replay.ratio 16 --serving.training-slots 8",
}


def measured(name: str, options: "SaturatedOptions") -> dict[str, Any]:
    """The curve of a case."""
    own, config = parse_to_measure(BalanceOptions, CASES[name].split(), prog=PROG)
    curve = measure(
        config,
        Pace(options.rounds, options.seconds),
        step_ms=int(name),
        most=own.most_env_servers,
        look=lambda text: print(f"  {text}", flush=True),
    )
    return {
        "config": CASES[name],
        "predicted": curve.predicted,
        "found": curve.found,
        "has_bend": curve.is_clear and curve.is_within,
        "costs": curve.costs._asdict(),
        "points": {
            number: {
                "found": rate,
                "predicted": steps_per_second(curve.costs, number),
                "capacities": capacities(curve.costs, number),
            }
            for number, rate in curve.rates.items()
        },
    }


def lines(found: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Points and saturation points, and a verdict of the issue's line."""
    rows = [("ms", "CONFIG", "env servers", "steps/s", "predicted", "binds")]
    for name, each in found.items():
        for number, point in each["points"].items():
            limits = point["capacities"]
            numbers = (f"{point['found']:,.0f}", f"{point['predicted']:,.0f}")
            binds = min(limits, key=limits.__getitem__)
            rows.append((name, each["config"], str(number), *numbers, binds))
    yield from (*table(rows), "")
    rows = [("ms", "predicted", "found", "error", "")]
    errors = []
    for name, each in found.items():
        errors.append(abs(each["predicted"] / each["found"] - 1))
        points = f"{each['predicted']:.1f}", f"{each['found']:.1f}"
        remark = "" if each["has_bend"] else "no clear bend"
        rows.append((name, *points, f"{each['predicted'] / each['found'] - 1:+.0%}", remark))
    yield from (*table(rows), "")
    has_bends = all(each["has_bend"] for each in found.values())
    close = sum(error <= _MOST_OF_THREE for error in errors)
    is_met = has_bends and max(errors) <= _MOST_ERROR and close >= len(errors) - 1
    text = f"within {_MOST_ERROR:.0%} in all, within {_MOST_OF_THREE:.0%} in all but one"
    yield f"{'met' if is_met else 'MISSED'}: {text}"


@dataclass(frozen=True, kw_only=True)
class SaturatedOptions:
    """Compare predicted and found saturation points of bundled configurations.

    Attributes:
      names: cases, by their milliseconds; by default all.
      seconds: duration of each measurement.
      rounds: repetitions of each measurement.
      output: JSON file to write.
    """

    names: Annotated[tuple[str, ...], POSITIONAL] = ()
    seconds: float = 5.0
    rounds: int = 6
    output: Path | None = None


def main(options: SaturatedOptions) -> int:
    found: dict[str, dict[str, Any]] = {}
    tune_process(keeps_freed_memory=True)
    for name in options.names or CASES:
        found[name] = measured(name, options)
        if options.output is not None:
            options.output.write_text(json.dumps(found, indent=1))
    print(*lines(found), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(read(SaturatedOptions, None, prog=PROG)))
