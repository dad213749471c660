"""Groups of runs, each with its numbers, and groups against groups: in words and as JSON.

Source of the statistics: Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the
Statistical Precipice", https://arxiv.org/abs/2108.13264, section 4.
"""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from statistics import mean, median
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from learner.extras.measured_run import Group, MeasuredRun
from learner.report.json_lines import plain
from learner.report.panel import score
from seedrl.errors import ConfigError

Floats = NDArray[np.float64]

_REPETITIONS = 10_000
_FEW_RUNS = 10
_CAUTION = (
    "intervals are 95 % percentile bootstrap of the interquartile mean (IQM); with few runs they "
    "are too narrow: 3, 5 and 10 runs hold the true value in about 73 %, 85 % and 90 % of cases"
)


def interquartile_mean(scores: ArrayLike, axis: int = -1) -> Floats:
    """Mean of the middle half of `[..., n]`: a quarter, rounded down, is cut from each end.

    So of three scores it is the mean, of five the mean of the middle three.
    """
    ordered = np.moveaxis(np.sort(np.asarray(scores, np.float64), axis=axis), axis, -1)
    cut = ordered.shape[-1] // 4
    return np.asarray(ordered[..., cut : ordered.shape[-1] - cut].mean(axis=-1))


def probability_of_improvement(a: ArrayLike, b: ArrayLike, axis: int = -1) -> Floats:
    """P(A > B) of a score of `[..., n]` and one of `[..., m]`; ties count half.

    That is the Mann-Whitney statistic U of A, divided by n m.
    """
    left, right = np.moveaxis(np.asarray(a), axis, -1), np.moveaxis(np.asarray(b), axis, -1)
    wins = (left[..., :, None] > right[..., None, :]) + 0.5 * (
        left[..., :, None] == right[..., None, :]
    )
    return np.asarray(wins.mean(axis=(-2, -1)))


class Interval(NamedTuple):
    """A confidence interval, both ends included."""

    low: float
    high: float


def interval(samples: Sequence[Sequence[float]], statistic: Callable[..., Floats]) -> Interval:
    """95 % percentile bootstrap interval; each sample is resampled by itself, seed 0."""
    from scipy.stats import bootstrap

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # equal scores have an interval of no width
        found = bootstrap(
            samples,
            statistic,
            n_resamples=_REPETITIONS,
            method="percentile",
            random_state=np.random.default_rng(0),
        ).confidence_interval
    return Interval(float(found.low), float(found.high))


def area_over(budget: float, positions: ArrayLike, values: ArrayLike) -> float:
    """Mean height of a curve from 0 to `budget`: the area under it, divided by the budget.

    Between its points the curve is straight; before the first and behind the last it is level.

    Args:
      budget: above 0.
      positions, values: `[n]` each, positions ascending; what is beyond the budget is cut off.
    """
    where = np.asarray(positions, np.float64)
    inside = where[(where > 0) & (where < budget)]
    points = np.concatenate([[0.0], inside, [budget]])
    return float(np.trapezoid(np.interp(points, where, np.asarray(values)), points) / budget)


class Spread(NamedTuple):
    """A number of each run: mean, interquartile mean with its interval (None of one), and each."""

    mean: float
    iqm: float
    interval: Interval | None
    each: list[float]


class Threshold(NamedTuple):
    """Environment steps and seconds until a return was reached, by run and their medians.

    Infinite for a run that never did.
    """

    median_steps: float
    median_seconds: float
    steps: list[float]
    seconds: list[float]


class Numbers(NamedTuple):
    """A group's final scores, mean returns over the budget, and when it reached a return."""

    group: Group
    final: Spread
    area: Spread
    threshold: float | None
    reached: Threshold | None


class Pair(NamedTuple):
    """Group A against group B on one task, by their places in the list of groups.

    Attributes:
      a, b: the places.
      probability: that a run of A has a larger final score than one of B; ties count half.
      interval: of the probability; None if either group has a single run.
    """

    a: int
    b: int
    probability: float
    interval: Interval | None


class Comparison(NamedTuple):
    """Numbers of all groups, those of `--against` last, and of pairs of them."""

    groups: list[Numbers]
    pairs: list[Pair]


def compare(
    groups: Sequence[Group], against: Sequence[Group], threshold: float | None
) -> Comparison:
    """Each of `groups` with each of `against` that plays the same.

    `threshold`: a return; None for the target that all runs of a task have. Raises ConfigError if
    the two sides play different environments.
    """
    tasks = [{each.task for each in side} for side in (groups, against)]
    if against and tasks[0] != tasks[1]:
        raise ConfigError(
            "--against: expected runs of the same environments on both sides, got "
            f"{', '.join(sorted(tasks[0]))} against {', '.join(sorted(tasks[1]))}"
        )
    both = [*groups, *against]
    found = [
        numbers(each, target_of(each.task, both) if threshold is None else threshold)
        for each in both
    ]
    pairs = [
        Pair(place_a, place_b, *_improvement(a.final.each, b.final.each))
        for place_a, a in enumerate(found[: len(groups)])
        for place_b, b in enumerate(found[len(groups) :], len(groups))
        if a.group.task == b.group.task
    ]
    return Comparison(found, pairs)


def numbers(group: Group, threshold: float | None) -> Numbers:
    """What the group shows; `threshold` is a return."""
    areas = []
    for run in group.runs:
        # In the order of the steps: confirmed parameters may be older than those played before.
        curve = sorted(run.curve, key=lambda each: each.env_steps)
        where = [each.env_steps for each in curve]
        areas.append(area_over(run.budget, where, [each.mean_return for each in curve]))
    reached = None
    if threshold is not None:
        rounds = [run.reached(threshold) for run in group.runs]
        steps = [math.inf if each is None else each.env_steps for each in rounds]
        seconds = [math.inf if each is None else each.seconds for each in rounds]
        reached = Threshold(median(steps), median(seconds), steps, seconds)
    final = _spread([run.final for run in group.runs])
    return Numbers(group, final, _spread(areas), threshold, reached)


def target_of(task: str, groups: Sequence[Group]) -> float | None:
    """The return that all runs of a task had as their target; None if they differ, or had none."""
    runs = [run for each in groups if each.task == task for run in each.runs]
    targets = {run.config["evaluation"].get("target_return") for run in runs}
    return targets.pop() if len(targets) == 1 else None


def _improvement(a: list[float], b: list[float]) -> tuple[float, Interval | None]:
    bounds = interval([a, b], probability_of_improvement) if min(len(a), len(b)) > 1 else None
    return float(probability_of_improvement(a, b)), bounds


def _spread(each: list[float]) -> Spread:
    bounds = interval([each], interquartile_mean) if len(each) > 1 else None
    return Spread(mean(each), float(interquartile_mean(each)), bounds, each)


def lines(comparison: Comparison) -> Iterator[str]:
    """The comparison, line by line."""
    for task in dict.fromkeys(each.group.task for each in comparison.groups):
        yield task
        for place, each in enumerate(comparison.groups):
            if each.group.task == task:
                yield f"  {letter(place)}  {_title(each.group)}"
                yield from (f"       {label:<17}{text}" for label, text in _rows(each))
    for pair in comparison.pairs:
        a, b = letter(pair.a), letter(pair.b)
        task, bounds = comparison.groups[pair.a].group.task, _bounds(pair.interval, ".2f")
        yield f"{task}: P({a} > {b}) = {pair.probability:.2f}{bounds} (final scores)"
    runs = [run for each in comparison.groups for run in each.group.runs]
    if any(1 < len(each.group.runs) < _FEW_RUNS for each in comparison.groups):
        yield f"note: {_CAUTION}"
    if not all(run.is_fresh for run in runs):
        yield (
            "note: some final scores are of rounds in training; `seedrl evaluate RUN --greedy "
            "--save` plays 100 fresh episodes"
        )


def as_json(comparison: Comparison) -> dict[str, Any]:
    """The same numbers as JSON values; what is not finite, such as a run that never got there, is
    null."""
    groups = [
        {
            "letter": letter(place),
            "name": each.group.name,
            "task": each.group.task,
            "runs": [_run(run) for run in each.group.runs],
            "budget": each.group.runs[0].budget,
            "final": _dict(each.final),
            "area": _dict(each.area),
            "threshold": each.threshold,
            "reached": _dict(each.reached),
        }
        for place, each in enumerate(comparison.groups)
    ]
    pairs = [{**_dict(pair), "a": letter(pair.a), "b": letter(pair.b)} for pair in comparison.pairs]
    found: dict[str, Any] = plain({"groups": groups, "pairs": pairs})
    return found


def letter(place: int) -> str:
    """The letter of a group: A, B, ..., Z, AA."""
    first, last = divmod(place, 26)
    return (letter(first - 1) if first else "") + chr(ord("A") + last)


def _title(group: Group) -> str:
    runs = group.runs
    seeds = " ".join(str(run.record.seed) for run in runs)
    finished = sum(run.record.state == "finished" for run in runs)
    state = "" if finished == len(runs) else f", {finished} of them finished"
    number = f"{len(runs)} run{'s' * (len(runs) != 1)}, seed{'s' * (len(runs) != 1)} {seeds}"
    return f"{group.name}: {number}, budget {runs[0].budget:,} steps{state}"


def _rows(each: Numbers) -> Iterator[tuple[str, str]]:
    origins = ", ".join(sorted({run.final_origin for run in each.group.runs}))
    yield "final score", f"{_spread_text(each.final)}   ({origins})"
    if each.threshold is not None and each.reached is not None:
        steps, seconds = map(_whole, (each.reached.median_steps, each.reached.median_seconds))
        of_runs = " ".join(map(_whole, each.reached.steps))
        yield f"to {each.threshold:g}", f"median {steps} steps, {seconds} s: {of_runs} steps"
    yield "area / budget", _spread_text(each.area)


def _spread_text(found: Spread) -> str:
    each = " ".join(map(score, found.each))
    return f"mean {score(found.mean)}, IQM {score(found.iqm)}{_bounds(found.interval)}: {each}"


def _whole(value: float) -> str:
    return f"{value:,.0f}" if math.isfinite(value) else "never"


def _bounds(found: Interval | None, form: str = "") -> str:
    if found is None:
        return ""
    low, high = (format(each, form) if form else score(each) for each in found)
    return f" [{low}, {high}]"


def _run(run: MeasuredRun) -> dict[str, Any]:
    return {
        "folder": str(run.record.folder),
        "seed": run.record.seed,
        "state": run.record.state,
        "env_steps": run.record.env_steps,
        "seconds": run.seconds,
        "final": run.final,
        "final_origin": run.final_origin,
    }


def _dict(found: Any) -> Any:
    """A named tuple as names and values, also those within it."""
    if hasattr(found, "_asdict"):
        return {name: _dict(value) for name, value in found._asdict().items()}
    return found
