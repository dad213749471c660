"""`seedrl balance CONFIG`: how many env servers a run needs, predicted and found."""

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from learner.cli.arguments import (
    parse_to_measure,
    require_at_least,
    require_file,
    require_positive,
    table,
    write_output,
)
from learner.processes.tuning import require_jax
from seedrl.config import Config
from seedrl.errors import ConfigError
from seedrl.exit_codes import ExitCode
from seedrl.run_files import CONFIG as CONFIG_FILE

if TYPE_CHECKING:  # imports jax
    from learner.extras.balance import Curve

PROG = "seedrl balance"


@dataclass(frozen=True, kw_only=True)
class BalanceOptions:
    """Predict how many env servers a run needs, then measure it.

    Measures the costs of a step with one env server, and predicts the number beyond which more env
    servers bring nothing. Then measures numbers around it, with the environment as it is and
    slowed. With --environments, --step-ms or --accelerator nothing is started: CONFIG is then the
    directory of a run on this machine, and its metrics have the costs.

    Example: seedrl balance cartpole_r2d2 --slower-ms 0 10 --output balance.png

    Attributes:
      slower_ms: milliseconds to add to each step: 0, 1, 10 or 50, one curve each.
      most_env_servers: largest number of env servers to start.
      seconds: duration of each measurement.
      rounds: repetitions of each measurement.
      output: PNG file to write the curves to.
      force: replace an existing output file.
      environments: number of environments to predict for.
      step_ms: milliseconds of one environment step to predict for; by default as measured.
      accelerator: speed of the device to predict for, relative to the run's device: with 10, acting
        and updates take a tenth of the time.
      allow: code that CONFIG may name, as for `seedrl train`.
    """

    slower_ms: tuple[int, ...] = (0, 1, 10, 50)
    most_env_servers: int = 16
    seconds: float = 5.0
    rounds: int = 3
    output: Path | None = None
    force: bool = False
    environments: int | None = None
    step_ms: float | None = None
    accelerator: float | None = None
    allow: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        require_at_least(self, most_env_servers=2, rounds=1)
        require_positive(self, "seconds", "step_ms", "environments", "accelerator")
        if not self.slower_ms or not set(self.slower_ms) <= {0, 1, 10, 50}:
            got = " ".join(map(str, self.slower_ms)) or "nothing"
            raise ConfigError(f"--slower-ms: expected some of 0, 1, 10 and 50, got {got}")


def require_overlap(config: Config) -> None:
    """Raises ConfigError for a schedule in which acting and learning take turns."""
    if config.learning.schedule != "asynchronous":
        raise ConfigError(
            "learning.schedule: expected asynchronous, in which acting and learning overlap, got "
            f"{config.learning.schedule}"
        )


def run(argv: Sequence[str]) -> int:
    """Prints curves and advice, or a prediction; returns the exit code."""
    options, config = parse_to_measure(BalanceOptions, argv, prog=PROG)
    require_overlap(config)
    require_file("--output", options.output, force=options.force)
    require_jax(starts=False)
    asked = (options.environments, options.step_ms, options.accelerator)
    if any(each is not None for each in asked):
        folder = Path(argv[0])
        folder = folder.parent if folder.name == CONFIG_FILE else folder
        print(*_predicted(options, config, folder), sep="\n")
        return ExitCode.OK
    return _measure(options, config, argv[0])


def _predicted(options: BalanceOptions, config: Config, folder: Path) -> Iterator[str]:
    from learner.extras.balance import costs_of_run
    from learner.report.balance import (
        accelerated,
        advice,
        capacities,
        slowed,
        steps_per_second,
    )

    costs, each = costs_of_run(folder, config)
    if options.step_ms is not None:
        costs = slowed(costs, options.step_ms / 1e3)
    if options.accelerator is not None:
        costs = accelerated(costs, options.accelerator)
    number = costs.env_servers
    if options.environments is not None:
        number = math.ceil(options.environments / each)
    rate = steps_per_second(costs, number)
    yield f"{number * each} environments in {number} env servers: {rate:,.0f} steps/s, predicted"
    for stage, most in capacities(costs, number).items():
        yield f"  {stage:<14} {most:>10,.0f} steps/s at most"
    yield advice(costs, number, replay_ratio=getattr(config.replay, "ratio", None))


def _measure(options: BalanceOptions, config: Config, name: str) -> int:
    # After the checks: what they import takes seconds.
    from rich.console import Console

    from learner.extras import balance
    from learner.extras.bench.measuring import Pace
    from learner.processes.tuning import tune_for

    tune_for(config)
    pace = Pace(options.rounds, options.seconds)
    with Console(stderr=True).status("") as status:
        curves = [
            balance.measure(
                config,
                pace,
                step_ms=step_ms,
                most=options.most_env_servers,
                look=lambda text: status.update(f"{name}, {text}"),
            )
            for step_ms in dict.fromkeys(options.slower_ms)
        ]
    print(*_lines(curves, config), sep="\n")
    if options.output is not None:
        write_output(options.output, balance.png(curves, name))
        print(f"wrote {options.output}", file=sys.stderr)
    return ExitCode.OK


def _lines(curves: "Sequence[Curve]", config: Config) -> Iterator[str]:
    # The curves, their saturation points, and what to change in the configuration.
    from learner.report.balance import advice, steps_per_second

    rows = [("step", "env servers", "steps/s", "predicted")]
    for curve in curves:
        for number, rate in curve.rates.items():
            predicted = steps_per_second(curve.costs, number)
            rows.append((curve.name, str(number), f"{rate:,.0f}", f"{predicted:,.0f}"))
    yield from (*table(rows), "")
    rows = [("step", "saturation predicted", "found", "error")]
    for curve in curves:
        found, error = f"{curve.found:.1f}", f"{curve.predicted / curve.found - 1:+.0%}"
        if not curve.is_clear:  # other programs, say
            found, error = "no clear bend", "-"
        elif not curve.is_within:
            is_low = curve.found <= min(curve.rates)
            found, error = f"at {'most' if is_low else 'least'} {curve.found:.0f}", "-"
        rows.append((curve.name, f"{curve.predicted:.1f} env servers", found, error))
    yield from (*table(rows), "")
    now, ratio = config.launch.env_servers, getattr(config.replay, "ratio", None)
    for curve in curves:
        yield f"{curve.name}: {advice(curve.costs, now, replay_ratio=ratio)}."
