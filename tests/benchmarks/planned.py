"""The predictions of `seedrl plan` beside what is measured: `python -m tests.benchmarks.planned`.

Measures what the parts cost with one process of env servers, predicts 1, 2, 4, ... of them, all on
this machine, and measures each: environments that sleep, as slow ones elsewhere would, and
environments that compute. Nothing else may run. Writes docs/results/plan.json, the table of
docs/scaling.md and the costs that `seedrl plan` has by default.
"""

import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from learner.bench.measure import machine
from learner.bench.measure.machine import num_cores
from learner.bench.rigs.system import System
from learner.bench.scaling import constant
from learner.cli.arguments import parse_flags
from learner.planning import measuring
from learner.planning.costs import BUNDLED, Costs
from learner.planning.demand import Demand, Machines
from learner.planning.prediction import Prediction, predict
from learner.session.process import tune_process
from seedrl.config import LaunchConfig
from seedrl.programs.outcome import exit_code

ROOT = Path(__file__).parents[2]
PROG = "python -m tests.benchmarks.planned"
PAGE, RESULTS = ROOT / "docs" / "scaling.md", ROOT / "docs" / "results" / "plan.json"
_BEGIN, _END = "<!-- planned: begin -->\n", "<!-- planned: end -->\n"
_SHAPE = (4,)
_CAPACITY_STEPS = 20_000


class Kind(NamedTuple):
    """Environments, one of each env server.

    Attributes:
      name: what they do.
      sleep_seconds, busy_seconds: in a step.
      varies: whether each takes a half to one and a half of that.
      numbers: of env servers that are measured.
    """

    name: str
    sleep_seconds: float
    busy_seconds: float
    varies: bool
    numbers: tuple[int, ...]


KINDS = (
    Kind("sleep for 25 to 75 ms", 0.05, 0.0, True, (1, 2, 4, 8, 16, 32, 64, 128)),
    Kind("sleep for 50 ms", 0.05, 0.0, False, (8, 32, 128)),
    Kind("compute for 2.5 to 7.5 ms", 0.0, 0.005, True, (1, 2, 4, 8)),
)


class Row(NamedTuple):
    """One fleet, as predicted and as measured.

    Attributes:
      kind: of its environments.
      env_servers: processes.
      predicted_steps, measured_steps: a second.
      predicted_cores, measured_cores: of learner and env servers.
      predicted_batch, measured_batch: messages of a batch.
    """

    kind: str
    env_servers: int
    predicted_steps: float
    measured_steps: float
    predicted_cores: float
    measured_cores: float
    predicted_batch: float
    measured_batch: float


@dataclass(frozen=True, kw_only=True)
class Options:
    """Compares predictions with measurements; see the module.

    Attributes:
      seconds: of each measurement.
      most: env servers at most.
      conditions: what else a reader must know, after a comma.
      json: file for all numbers; nothing else is written if it is another than theirs.
    """

    seconds: float = 5.0
    most: int = 128
    conditions: str = ""
    json: Path = RESULTS


def main(argv: Sequence[str]) -> int:
    """Measures, prints and writes; returns the exit code."""
    options = parse_flags(Options, argv, prog=PROG)
    tune_process(keeps_freed_memory=False)
    costs = measuring.measured(options.seconds)
    print(json.dumps(costs.to_json()), flush=True)
    rows = []
    for row in compared(costs, options.seconds, options.most):
        print(*row, flush=True)
        rows.append(row)
    document = {
        "machine": machine.describe(),
        "conditions": options.conditions,
        "seconds": options.seconds,
        "costs": costs.to_json(),
        "rows": [row._asdict() for row in rows],
    }
    options.json.write_text(json.dumps(document, indent=2) + "\n")
    print(table(document))
    if options.json == RESULTS:
        PAGE.write_text(with_table(PAGE.read_text(), document))
        BUNDLED.write_text(json.dumps(costs.to_json(), indent=2) + "\n")
    return 0


def compared(costs: Costs, seconds: float, most: int) -> Iterator[Row]:
    """Fleets of 1, 2, 4, ... env servers."""
    for kind in KINDS:
        for number in (number for number in kind.numbers if number <= most):
            found, seen = predicted(costs, kind, number), measured(kind, number, seconds)
            yield Row(
                kind=kind.name,
                env_servers=number,
                predicted_steps=found.steps_per_second,
                measured_steps=seen.messages_per_second,
                predicted_cores=found.cores,
                measured_cores=seen.learner_cores + seen.env_server_cores,
                predicted_batch=found.messages_per_batch,
                measured_batch=seen.messages_per_batch,
            )


def predicted(costs: Costs, kind: Kind, env_servers: int) -> Prediction:
    """What they would do on this machine."""
    demand = Demand(
        environments=env_servers,
        envs_per_server=1,
        groups=1,
        step_seconds=kind.sleep_seconds + kind.busy_seconds,
        step_cpu_seconds=kind.busy_seconds,
        equal_steps=not kind.varies,
    )
    return predict(costs, demand, Machines(shared_cores=num_cores()))


def measured(kind: Kind, env_servers: int, seconds: float) -> measuring.Measured:
    """What they do, processes of their own."""
    arguments = {
        "shape": _SHAPE,
        "dtype": "float32",
        "step_seconds": kind.sleep_seconds,
        "busy_seconds": kind.busy_seconds,
        "varies": kind.varies,
    }
    launch = LaunchConfig(env_servers=env_servers, envs_per_server=1, groups=1)
    with System(constant(arguments, launch, capacity_steps=_CAPACITY_STEPS)) as system:
        return measuring.of_interval(system.run(seconds))


def table(document: dict[str, Any]) -> str:
    """The rows as Markdown, and where they are from."""
    found = document["machine"]
    commit = (found["commit"] or "unknown").partition("-")[0][:12]
    lines = [
        f"On {found['cores']} cores of an {found['processor']}, {found['time'][:10]}, load average "
        f"{found['load_average']:.1f}, commit {commit}{document['conditions']}:",
        "",
        "| environments | env servers | steps/s: predicted | measured | ratio "
        "| cores: predicted | measured | ratio |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for fields in document["rows"]:
        row = Row(**fields)
        steps = (row.predicted_steps, row.measured_steps)
        cores = (row.predicted_cores, row.measured_cores)
        lines.append(
            f"| {row.kind} | {row.env_servers} | {steps[0]:,.0f} | {steps[1]:,.0f} "
            f"| {steps[0] / steps[1]:.2f} | {cores[0]:.2f} | {cores[1]:.2f} "
            f"| {cores[0] / cores[1]:.2f} |"
        )
    return "\n".join(lines) + "\n"


def with_table(page: str, document: dict[str, Any]) -> str:
    """The page with that table, between its marks."""
    text = f"{_BEGIN}{table(document)}{_END}"
    pattern = re.escape(_BEGIN) + ".*" + re.escape(_END)
    return re.sub(pattern, lambda _: text, page, flags=re.DOTALL)


if __name__ == "__main__":
    sys.exit(exit_code(lambda: main(sys.argv[1:]), prog=PROG))
