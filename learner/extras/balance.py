"""Steps per second against the number of env servers, predicted from one run and then found.

The environment is measured as it is, and slowed by sleeps. Each number of env servers is a system
of its own: a learner and its env servers, as a run has them. All are there, and run in turn.
"""

import contextlib
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from learner.extras.bench.bounds import prepared
from learner.extras.bench.measuring import Pace, interleave
from learner.extras.bench.system import System
from learner.report.balance import Costs, costs_of, saturation, steps_per_second
from learner.report.history import History, picture
from learner.report.json_lines import LineReader
from learner.report.stages import num_cores
from seedrl.config import Config
from seedrl.errors import ConfigError
from seedrl.fields import with_fields
from seedrl.run_files import METRICS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Milliseconds by which a step is made longer, with the wrapper that does it.
SLOWED = {ms: f"envs_server.envs.slowed:by_{ms}_ms" for ms in (1, 10, 50)}
# In the replay of a learner: an update costs the same however large that is.
_MOST_STEPS = 20_000
_MOST_SPREAD = 1.3  # of points around a curve with a bend
# Where a curve is measured, relative to the predicted saturation point.
_PLACES = (0.5, 1.0, 1.5, 2.0)


class Curve(NamedTuple):
    """An environment with each step `step_ms` longer: the costs of one run, and what was found."""

    step_ms: int
    costs: Costs
    rates: Mapping[int, float]  # steps/s by the number of env servers; the first has the costs

    @property
    def name(self) -> str:
        return f"{self.step_ms} ms slower" if self.step_ms else "as it is"

    @property
    def predicted(self) -> float:
        """The number of env servers from which more bring nothing, by the model."""
        return saturation(self.costs)

    @property
    def found(self) -> float:
        """The same, of the curve."""
        return knee(self.rates)

    @property
    def is_within(self) -> bool:
        """True if the curve has points on both sides of what was found."""
        return min(self.rates) < self.found < max(self.rates)

    @property
    def is_clear(self) -> bool:
        """True if all points lie near a curve that bends there, within 15 % or so."""
        slopes = [rate / min(number, self.found) for number, rate in self.rates.items()]
        return max(slopes) <= _MOST_SPREAD * min(slopes)


def knee(curve: Mapping[int, float]) -> float:
    """Where a curve that rises in proportion and then stays level bends, at the least squares.

    The errors are relative ones. It is the smallest or the largest number if all points are level,
    or all in proportion.
    """
    numbers, rates = np.array([*curve.items()], np.float64).T
    candidates = np.geomspace(numbers.min(), numbers.max(), 500)
    shapes = np.minimum(1.0, numbers / candidates[:, None]) / rates  # [candidate, point]
    levels = shapes.sum(axis=1) / (shapes**2).sum(axis=1)
    errors = ((1.0 - levels[:, None] * shapes) ** 2).sum(axis=1)
    return float(candidates[int(np.argmin(errors))])


def measure(
    config: Config, pace: Pace, *, step_ms: int, most: int, look: Callable[[str], object]
) -> Curve:
    """The curve of an environment whose steps take `step_ms` longer.

    `most`: env servers of a point. `look` is told what happens. Raises ConfigError if the
    configuration does not work.
    """
    with contextlib.ExitStack() as stack:

        def measuring(number: int) -> Callable[[], Mapping[str, float]]:
            look(f"{step_ms} ms slower: starting {number} env servers")
            system = stack.enter_context(System(scaled(config, number, step_ms)))
            # As long as a run takes to learn, and to become steady.
            system.run_until(lambda: system.parts.learning.updates > 0)
            system.run(0.0, by_updates=True)

            def measure_once() -> Mapping[str, float]:
                look(f"{step_ms} ms slower: measuring {number} env servers")
                return system.run(pace.seconds, by_updates=True).metrics

            return measure_once

        measures = {1: measuring(1)}
        point = saturation(_costs(measures[1]()))
        numbers = {round(place * point) for place in _PLACES} | ({2, 3} if point < 2 else set())
        for number in sorted({min(most, max(1, number)) for number in numbers} - {1}):
            measures[number] = measuring(number)
        # In turn: other load on the machine hits all of them.
        found = interleave({str(number): each for number, each in measures.items()}, pace.rounds)
    means = {int(number): _mean(intervals) for number, intervals in found.items()}
    rates = {number: metrics["env_steps_per_second"] for number, metrics in means.items()}
    return Curve(step_ms, _costs(means[1]), rates)


def _mean(intervals: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each metric that all of them have."""
    names = set.intersection(*map(set, intervals))
    return {name: statistics.fmean(each[name] for each in intervals) for name in sorted(names)}


def _costs(metrics: Mapping[str, float]) -> Costs:
    found = costs_of(metrics, cores=num_cores())
    assert found is not None, "an interval has an update, and steps"
    return found


def environments_each(config: Config) -> int:
    """Training environments of an env server."""
    each = -(-config.serving.training_slots // config.launch.env_servers)
    # That number has those that evaluate, too.
    return min(each, config.launch.envs_per_server or each)


def scaled(config: Config, env_servers: int, step_ms: int) -> Config:
    """The run with `env_servers` env servers. Each has as many environments as now."""
    changes: dict[str, Any] = {
        "launch.env_servers": env_servers,
        "serving.training_slots": env_servers * environments_each(config),
    }
    if step_ms:
        changes["environment.wrappers"] = (*config.environment.wrappers, SLOWED[step_ms])
    has_replay = hasattr(config.replay, "min_steps")
    if has_replay:  # as few as there may be, for more slots or fewer
        changes["replay.min_steps"] = config.replay.capacity_steps
    changed = prepared(with_fields(config, changes))
    if has_replay:  # room for several learners at once
        least = max(_MOST_STEPS, 2 * changed.replay.min_steps)
        capacity = min(config.replay.capacity_steps, least)
        changed = with_fields(changed, {"replay.capacity_steps": capacity})
    return changed


def costs_of_run(folder: Path, config: Config) -> tuple[Costs, int]:
    """Costs of a run, and the number of training environments of each of its env servers.

    By the metrics of its second half. Raises ConfigError without them.
    """
    history = History()
    for lines in LineReader(folder / METRICS).rest():
        history.add(lines)
    columns = {name: column[len(column) // 2 :] for name, column in history.columns().items()}
    known = {name: [x for x in column if x is not None] for name, column in columns.items()}
    means = {name: statistics.fmean(found) for name, found in known.items() if found}
    found, slots = costs_of(means, cores=num_cores()), means.get("slots_live")
    if found is None or slots is None:
        raise ConfigError(
            f"CONFIG: expected the directory of a run whose {METRICS} has the costs of a step, for "
            f"--environments, --step-ms and --accelerator, got {folder}"
        )
    serving = config.serving
    share = serving.training_slots / (serving.training_slots + serving.evaluation_slots)
    return found, max(1, round(slots * share / means["env_servers"]))


def png(curves: Sequence[Curve], title: str) -> bytes:
    """A chart of each curve: points as found, the prediction as a line."""

    def draw(figure: "Figure") -> None:
        for place, curve in enumerate(curves):
            axes = figure.add_subplot(1, len(curves), place + 1)
            fine = np.linspace(min(curve.rates) / 2, max(curve.rates), 200)
            line = [steps_per_second(curve.costs, number) for number in fine]
            axes.plot(fine, line, label="predicted from 1 env server")
            axes.plot([*curve.rates], [*curve.rates.values()], "o", label="found")
            axes.axvline(curve.predicted, linestyle=":", color="gray")
            axes.set(xlabel="env servers", title=f"{title}, {curve.name}")
            axes.set_ylim(bottom=0)
        figure.axes[0].set_ylabel("environment steps/s")
        figure.axes[0].legend(fontsize="small")

    return picture((4.5 * len(curves), 4.0), draw)
