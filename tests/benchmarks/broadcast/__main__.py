"""Central inference or broadcast parameters: which costs less processor time, predicted and found.

`python -m tests.benchmarks.broadcast` takes six minutes on two quiet cores. It measures the costs
of parts, predicts the cheaper arm in each of 27 cells, and only then runs them.
"""

import dataclasses
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from learner.extras.bench.measuring import interleave, machine
from learner.extras.bench.system import System
from learner.processes.tuning import tune_process
from seedrl.programs.command_line import read
from tests.benchmarks.broadcast import costs, model
from tests.benchmarks.broadcast.actor import Actors
from tests.benchmarks.broadcast.arms import learning_of, measure_central, playing
from tests.benchmarks.broadcast.workload import config_of, num_parameters
from tests.benchmarks.paced_environment import set_pace

PROG = "python -m tests.benchmarks.broadcast"
ARMS = ("central", "broadcast")
_CLOSE = 0.05


@dataclass(frozen=True, kw_only=True)
class BroadcastOptions:
    """Predict and measure both arms over parameters, observations and environments.

    Attributes:
      seconds: duration of each measurement of an arm.
      rounds: measurements of each arm in a cell, alternately.
      widths: of the networks' two hidden layers, ascending.
      observations: bytes of an observation, multiples of 16, ascending.
      step_ms: sleep of a step of 8 environments together.
      output: JSON file to write.
    """

    seconds: float = 1.5
    rounds: int = 2
    widths: tuple[int, ...] = (64, 384, 2048)
    observations: tuple[int, ...] = (16, 4096, 57_600)
    step_ms: tuple[float, ...] = (0.0, 1.0, 10.0)
    output: Path | None = None


def predicted(found: model.Costs, options: BroadcastOptions) -> Iterator[dict[str, Any]]:
    """The cells, with the processor seconds of a step that the model expects."""
    for width, size, step_ms in itertools.product(
        options.widths, options.observations, options.step_ms
    ):
        case = width, size, step_ms / 1e3
        yield {
            "width": width,
            "parameters": num_parameters(width),
            "observation_bytes": size,
            "step_ms": step_ms,
            "messages_of_batch": model.messages_of_batch(found, *case),
            "predicted": {
                "central": model.central(found, *case),
                "broadcast": model.broadcast(found, *case),
            },
        }


def run_cells(
    cells: Sequence[dict[str, Any]], actors: Actors, folder: Path, options: BroadcastOptions
) -> None:
    """Adds to cells that differ in the environment only each round of both arms."""
    width, size = cells[0]["width"], cells[0]["observation_bytes"]
    set_pace(folder, others=0)
    actors.make(width, size, folder)
    with System(config_of(width, size, folder)) as system:
        learning = learning_of(system, actors)
        with playing(system.parts, actors) as rollouts:
            measures = {
                "central": lambda: measure_central(system, options.seconds),
                "broadcast": lambda: rollouts.measure(learning, options.seconds),
            }
            for cell in cells:
                set_pace(folder, others=cell["step_ms"])
                found = interleave(measures, options.rounds)
                cell |= {arm: [each._asdict() for each in found[arm]] for arm in ARMS}
                cell["ratio"] = ratio(cell["predicted"]), ratio(means(cell, "cpu_seconds"))
                print(row(cell), flush=True)


def means(cell: dict[str, Any], name: str) -> dict[str, float]:
    """Of the rounds of each arm."""
    return {arm: statistics.fmean(each[name] for each in cell[arm]) for arm in ARMS}


def ratio(of_arms: dict[str, float]) -> float:
    """Of processor times: above 1 broadcast is cheaper."""
    return of_arms["central"] / of_arms["broadcast"]


def verdict(cell: dict[str, Any]) -> str:
    """`right`; if not, `close` where the arms differ by less than 5 %."""
    expected, found = cell["ratio"]
    if (expected > 1) == (found > 1):
        return "right"
    return "close" if 1 / (1 + _CLOSE) < found < 1 + _CLOSE else "wrong"


HEAD = """\
| parameters | observation | step | µs, predicted | µs | ratio, predicted | ratio | prediction |\
 steps/s | bytes up | bytes down | lag |
|---|---|---|---|---|---|---|---|---|---|---|---|"""


def row(cell: dict[str, Any]) -> str:
    """Of the table; of two numbers the first is of central inference."""

    def pair(of_arms: dict[str, float], digits: int = 0) -> str:
        return " / ".join(f"{of_arms[arm]:,.{digits}f}" for arm in ARMS)

    measured = means(cell, "cpu_seconds")
    columns = (
        f"{cell['parameters']:,}",
        f"{cell['observation_bytes']:,} B",
        f"{cell['step_ms']:g} ms",
        *(pair({arm: 1e6 * each[arm] for arm in ARMS}) for each in (cell["predicted"], measured)),
        *(f"{each:.2f}" for each in cell["ratio"]),
        verdict(cell),
        *(pair(means(cell, name)) for name in ("steps_per_second", "bytes_up", "bytes_down")),
        pair(means(cell, "lag_updates"), digits=1),
    )
    return f"| {' | '.join(columns)} |"


def crossovers(cells: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Of each observation and environment: parameters from which on central inference wins."""
    columns: dict[tuple[int, float], list[dict[str, Any]]] = {}
    for cell in cells:
        columns.setdefault((cell["observation_bytes"], cell["step_ms"]), []).append(cell)
    for (size, step_ms), own in columns.items():
        parameters = [cell["parameters"] for cell in own]
        expected, found = zip(*(cell["ratio"] for cell in own), strict=True)
        yield {
            "observation_bytes": size,
            "step_ms": step_ms,
            "predicted": model.crossover(parameters, expected),
            "found": model.crossover(parameters, found),
        }


def main(options: BroadcastOptions) -> int:
    tune_process(keeps_freed_memory=False)
    start, size = time.monotonic(), len(options.step_ms)
    with tempfile.TemporaryDirectory(prefix="seedrl-broadcast-") as name, Actors() as actors:
        folder = Path(name)
        set_pace(folder, others=0)
        found = costs.measure(options.widths, options.observations, actors, folder, options.seconds)
        cells = list(predicted(found, options))
        print(found, *cells, sep="\n", flush=True)  # before the first cell is run
        for first in range(0, len(cells), size):
            run_cells(cells[first : first + size], actors, folder, options)
    verdicts, lines = [verdict(cell) for cell in cells], list(crossovers(cells))
    print(HEAD, *map(row, cells), *lines, sep="\n")
    print(f"{verdicts.count('right')} of {len(cells)} right, {verdicts.count('close')} close")
    print(f"{time.monotonic() - start:.0f} s")
    if options.output is not None:
        result = {"costs": dataclasses.asdict(found), "cells": cells, "crossovers": lines}
        options.output.write_text(json.dumps({**machine(), **result}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(read(BroadcastOptions, None, prog=PROG)))
