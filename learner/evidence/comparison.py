"""Numbers of groups of runs, and of one group against another."""

import math
from collections.abc import Sequence
from statistics import mean, median
from typing import NamedTuple

import numpy as np

from learner.evidence.grouping import Group
from learner.evidence.measured_run import MeasuredRun
from learner.evidence.statistics import (
    Floats,
    Interval,
    area_over,
    interquartile_mean,
    interval,
    mann_whitney_p,
    probability_of_improvement,
)
from seedrl.errors import ConfigError


class Spread(NamedTuple):
    """A number of each run of a group.

    Attributes:
      mean, iqm: over runs; the interquartile mean.
      interval: 95 % bootstrap interval of the interquartile mean; None of a single run.
      each: by run.
    """

    mean: float
    iqm: float
    interval: Interval | None
    each: list[float]


class Threshold(NamedTuple):
    """When runs reached a return.

    Attributes:
      median_steps, median_seconds: over all runs; infinite if half of them never did.
      steps, seconds: by run; infinite for those that never did.
      never: how many never did.
    """

    median_steps: float
    median_seconds: float
    steps: list[float]
    seconds: list[float]
    never: int


class GroupNumbers(NamedTuple):
    """What a group shows.

    Attributes:
      group: name and runs.
      budget: environment steps that a run may take.
      final: final scores.
      area: mean return over the budget: the area under the learning curve, divided by it.
      threshold: when the return was reached; None if no return is asked for.
      pace: median over runs of each number of `Pace`, by its name; of those that measured it.
    """

    group: Group
    budget: int
    final: Spread
    area: Spread
    threshold: Threshold | None
    pace: dict[str, float]


class Improvement(NamedTuple):
    """Whether one group has the larger numbers.

    Attributes:
      probability: that a run of A has a larger number than one of B; ties count half.
      interval: 95 % stratified bootstrap interval; None if either group has a single run.
      p: exact one-sided p-value of Mann and Whitney; None over several tasks.
    """

    probability: float
    interval: Interval | None
    p: float | None


class Pair(NamedTuple):
    """Group A against group B on one task, by their places in the list of groups.

    Attributes:
      a, b: the places.
      final, area: of these numbers, whether A's are larger.
      steps: whether A reached the threshold in fewer environment steps; None without one, or if
        no run of either ever did.
    """

    a: int
    b: int
    final: Improvement
    area: Improvement
    steps: Improvement | None


def numbers(group: Group, threshold: float | None) -> GroupNumbers:
    """What the group shows; `threshold` is a return."""
    runs = group.runs
    return GroupNumbers(
        group=group,
        budget=runs[0].budget,
        final=_spread([run.final.mean for run in runs]),
        area=_spread([_area(run) for run in runs]),
        threshold=None if threshold is None else _threshold(runs, threshold),
        pace=_pace(runs),
    )


def threshold_of(groups: Sequence[Group]) -> float | None:
    """The return that all runs of a task had as their target; None if they differ, or had none."""
    targets = {
        run.config["evaluation"].get("target_return") for group in groups for run in group.runs
    }
    (target,) = targets if len(targets) == 1 else (None,)
    return target


def pairs(groups: Sequence[GroupNumbers], against: Sequence[GroupNumbers]) -> list[Pair]:
    """Each of `groups` against each of `against` on the same task; places are of all together.

    Raises ConfigError if one has no counterpart.
    """
    tasks = [{each.group.task for each in side} for side in (groups, against)]
    if tasks[0] != tasks[1]:
        raise ConfigError(
            "--against: expected runs of the same environments on both sides, got "
            f"{', '.join(sorted(tasks[0]))} against {', '.join(sorted(tasks[1]))}"
        )
    return [
        _pair(a, place_a, b, len(groups) + place_b)
        for place_a, a in enumerate(groups)
        for place_b, b in enumerate(against)
        if a.group.task == b.group.task
    ]


def overall(found: Sequence[Pair], all_groups: Sequence[GroupNumbers]) -> Improvement | None:
    """Of final scores, the mean over tasks; None unless each task has one pair, and there are two.

    Scores of different tasks have no common scale, but probabilities do.
    """
    tasks = [all_groups[pair.a].group.task for pair in found]
    if len(tasks) < 2 or len(set(tasks)) < len(tasks):
        return None
    sides = [(all_groups[pair.a].final.each, all_groups[pair.b].final.each) for pair in found]
    samples = [sample for side in sides for sample in side]
    return _improvement(samples)


def _pair(a: GroupNumbers, place_a: int, b: GroupNumbers, place_b: int) -> Pair:
    steps = None
    if a.threshold is not None and b.threshold is not None:
        # Fewer is better, and never the worst.
        both = [[-each for each in side.steps] for side in (a.threshold, b.threshold)]
        if any(map(math.isfinite, [*both[0], *both[1]])):
            steps = _improvement(both)
    return Pair(
        place_a,
        place_b,
        final=_improvement([a.final.each, b.final.each]),
        area=_improvement([a.area.each, b.area.each]),
        steps=steps,
    )


def _improvement(samples: Sequence[Sequence[float]]) -> Improvement:
    """Of A and B, task by task: `samples` are A's and B's of the first, then of the next."""
    return Improvement(
        probability=float(_mean_probability(*map(np.asarray, samples))),
        interval=interval(samples, _mean_probability) if min(map(len, samples)) > 1 else None,
        p=mann_whitney_p(*samples) if len(samples) == 2 else None,
    )


def _mean_probability(*samples: Floats) -> Floats:
    tasks = zip(samples[::2], samples[1::2], strict=True)
    return np.asarray(np.mean([probability_of_improvement(a, b) for a, b in tasks], axis=0))


def _spread(each: list[float]) -> Spread:
    bounds = interval([each], interquartile_mean) if len(each) > 1 else None
    return Spread(mean(each), float(interquartile_mean(each)), bounds, each)


def _area(run: MeasuredRun) -> float:
    curve = run.curve
    steps, returns = [each.env_steps for each in curve], [each.mean_return for each in curve]
    return area_over(run.budget, steps, returns)


def _threshold(runs: Sequence[MeasuredRun], threshold: float) -> Threshold:
    found = [run.reached(threshold) for run in runs]
    steps = [math.inf if each is None else float(each.env_steps) for each in found]
    seconds = [math.inf if each is None else each.seconds for each in found]
    return Threshold(median(steps), median(seconds), steps, seconds, found.count(None))


def _pace(runs: Sequence[MeasuredRun]) -> dict[str, float]:
    measured: dict[str, list[float]] = {}
    for run in runs:
        for name, value in run.pace._asdict().items():
            if value is not None:
                measured.setdefault(name, []).append(value)
    return {name: median(values) for name, values in measured.items()}
