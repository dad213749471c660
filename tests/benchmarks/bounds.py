"""A run and its two bounds: `python -m tests.benchmarks.bounds CONFIG [SECONDS ROUNDS]`.

With A and L the steps/s of acting and of learning, each by itself, and s of the run:

    1 / (1/A + 1/L) <= s <= min(A, L)

Prints one JSON object.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from learner.extras.bench.bounds import measure, rates
from learner.extras.bench.measuring import Pace, machine, ratios, serial, spread
from learner.extras.bench.system import Interval
from learner.processes.tuning import tune_for
from seedrl import config_io

_TOLERANCE = 0.05  # of the bounds


def compared(intervals: Mapping[str, Sequence[Interval]], *, update_steps: float) -> dict[str, Any]:
    """The rates and the bounds; ratios are medians of the rounds."""
    found = rates(intervals, update_steps)
    sides = list(zip(found["acting"], found["learning"], strict=True))
    upper = spread(ratios(found["both"], [min(pair) for pair in sides])).median
    lower = spread(ratios(found["both"], [serial(*pair) for pair in sides])).median
    # Of a step. At a huge replay ratio an interval may have none.
    costs = {
        side: [
            each.processor_seconds / max(rate * each.seconds, 1.0)
            for each, rate in zip(intervals[side], found[side], strict=True)
        ]
        for side in intervals
    }
    apart = list(map(sum, zip(costs["acting"], costs["learning"], strict=True)))
    return {
        "steps_per_second": {
            side: spread(each)._asdict() | {"rounds": each} for side, each in found.items()
        },
        "steps_per_update": update_steps,
        "of_upper": upper,
        "of_lower": lower,
        # More than 1: the sides hinder each other.
        "of_processor_time": spread(ratios(costs["both"], apart)).median,
        "is_between": upper <= 1 + _TOLERANCE and lower >= 1 - _TOLERANCE,
    }


def main(name: str, seconds: str = "3", rounds: str = "3") -> None:
    config = config_io.load(name)
    tune_for(config)
    intervals, update_steps = measure(config, Pace(int(rounds), float(seconds)))
    found = compared(intervals, update_steps=update_steps)
    print(json.dumps({"config": name, "machine": machine(), **found}))


if __name__ == "__main__":
    main(*sys.argv[1:])
