"""Is all time in a stage, and what does that cost? `python -m tests.benchmarks.attributed`.

Takes five minutes on two quiet cores. Of three runs: the sum of the shares of each side over 20 s,
which has to be 1; and the speed with the stages, in turn with the speed without them, for which
their clock is replaced. A second figure is steadier: the readings of that clock per second, times
the cost of one.
"""

import json
import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from unittest import mock

from learner.acting import loop
from learner.cli.arguments import table
from learner.extras.balance import scaled
from learner.extras.bench.measuring import interleave, rate, ratios, spread
from learner.extras.bench.system import System
from learner.processes.tuning import tune_process
from learner.report.metrics import Tally
from learner.report.stages import STAGES, Laps
from seedrl import config_io
from seedrl.programs.command_line import read
from seedrl.programs.flags import POSITIONAL

PROG = "python -m tests.benchmarks.attributed"
# Name, configuration, and milliseconds by which a step is longer. In the first one acting binds,
# so that whatever acting does costs steps.
CASES = {
    "CartPole": ("cartpole_impala", 0),
    "Pong": ("pong_r2d2", 0),
    "10 ms": ("cartpole_r2d2", 10),
}
_MOST_ERROR = 0.05
_MOST_COST = 0.01


class Off(Laps):
    """Attributes nothing, and reads the clock only at the start of a turn, as acting needs it."""

    def lap(self, stage: str, until: float | None = None) -> float:
        return self._last

    def add(self, stage: str, seconds: float) -> None:
        pass


class Counted(Laps):
    """Counts its laps."""

    number = 0

    def lap(self, stage: str, until: float | None = None) -> float:
        self.number += 1
        return super().lap(stage, until)


def seconds_of_a_lap() -> float:
    """Processor time of one lap."""
    laps = Laps(Tally(), time.monotonic)

    def work() -> float:
        for _ in range(1000):
            laps.lap("acting_act")
        return 1000.0

    return 1 / rate(work, 0.2)


def measured(name: str, step_ms: int, options: "AttributedOptions") -> dict[str, Any]:
    """The shares of a configuration's run, and the costs of having them."""
    config = config_io.load(name)
    with System(scaled(config, config.launch.env_servers, step_ms)) as system:
        sides: list[Any] = [system.parts.acting[0], system.parts.learning]
        own = [side.laps for side in sides]
        system.run_until(lambda: system.parts.learning.updates > 0)
        system.run(0.0, by_updates=True)  # steady from here on
        metrics = system.run(options.seconds, by_updates=True).metrics

        def run(laps: list[Any]) -> float:
            for side, each in zip(sides, laps, strict=True):
                side.laps = each
            interval = system.run(options.paired_seconds, by_updates=True)
            return interval.steps / interval.seconds

        def run_without() -> float:
            with mock.patch.object(loop, "seconds_owed", lambda steps: ([], [])):
                return run([Off(Tally(), time.monotonic) for _ in sides])

        counted = [Counted(Tally(), time.monotonic) for _ in sides]
        start = time.perf_counter()
        run(counted)
        laps = sum(each.number for each in counted) / (time.perf_counter() - start)
        found = interleave({"with": lambda: run(own), "without": run_without}, options.rounds)
    paired = ratios(found["with"], found["without"])
    return {
        "sums": {
            side: sum(metrics[f"{side}_{stage}_share"] for stage in stages)
            for side, stages in STAGES.items()
        },
        "steps_per_second": statistics.median(found["with"]),
        "cost": {**spread([1 - each for each in paired])._asdict(), "rounds": paired},
        "laps_per_second": laps,
        "counted_cost": laps * seconds_of_a_lap(),
    }


def lines(found: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """A table, and a verdict for each line of the issue."""
    rows = [("run", "steps/s", "acting", "learning", "paired cost", "laps/s", "counted cost")]
    for name, each in found.items():
        median, lowest, highest = (each["cost"][key] for key in ("median", "lowest", "highest"))
        rows.append(
            (
                name,
                f"{each['steps_per_second']:,.0f}",
                *(f"{number:.3f}" for number in each["sums"].values()),
                f"{median:.1%} ({lowest:.1%}..{highest:.1%})",
                f"{each['laps_per_second']:,.0f}",
                f"{each['counted_cost']:.2%}",
            )
        )
    yield from table(rows)
    for name, each in found.items():
        is_met = all(abs(number - 1) <= _MOST_ERROR for number in each["sums"].values())
        yield f"{_word(is_met)}: {name}: shares add up to 1 within {_MOST_ERROR}"
        is_met = each["cost"]["median"] <= _MOST_COST
        yield f"{_word(is_met)}: {name}: paired, they cost at most {_MOST_COST:.0%}"


def _word(is_met: bool) -> str:
    return "met" if is_met else "MISSED"


@dataclass(frozen=True, kw_only=True)
class AttributedOptions:
    """Check the shares of a run's stages, and measure what they cost.

    Attributes:
      names: runs; by default all.
      seconds: duration of the interval whose shares are added up.
      paired_seconds: duration of each measurement with or without them.
      rounds: of measurements with and without them.
      output: JSON file to write.
    """

    names: Annotated[tuple[str, ...], POSITIONAL] = ()
    seconds: float = 20.0
    paired_seconds: float = 2.0
    rounds: int = 14
    output: Path | None = None


def main(options: AttributedOptions) -> int:
    found: dict[str, dict[str, Any]] = {}
    tune_process(keeps_freed_memory=True)
    for name in options.names or CASES:
        config, step_ms = CASES[name]
        found[name] = measured(config, step_ms, options)
        if options.output is not None:
            options.output.write_text(json.dumps(found, indent=1))
    print(*lines(found), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(read(AttributedOptions, None, prog=PROG)))
