"""Groups of runs, each with its numbers, and groups against groups: as text, JSON, picture.

A run is evidence by its folder alone: its learning curve and its final score. The folder may be
anybody's: only regular files are read, and wrong lines are left out.

Source of the statistics: Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the
Statistical Precipice", https://arxiv.org/abs/2108.13264, section 4.
"""

import json
import math
import string
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from learner.checkpoints.run_records import (
    Round,
    RunRecord,
    played_rounds,
    read_final_score,
    read_run,
)
from learner.report.history import picture
from learner.report.json_lines import plain
from learner.report.terminal import score
from seedrl import run_files
from seedrl.config import OWN_SERVING
from seedrl.errors import ConfigError
from seedrl.run import leaves_of
from seedrl.run_files import read_object

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]

_CAUTION = (
    "intervals are 95 % percentile bootstrap; with few runs they are too narrow: of the "
    "interquartile mean (IQM) of 3, 5 and 10 runs they hold the true value in about 73 %, 85 % and "
    "90 % of cases, of a P near 0 or 1 in fewer"
)
# What does not change how a run learns, or must differ between its runs.
_IGNORED = (
    "seed",
    "environment.metrics",
    *(f"serving.{name.replace('_', '-')}" for name in OWN_SERVING),
)
_IGNORED_SECTIONS = ("logging.", "checkpoint.")


class MeasuredRun(NamedTuple):
    """What is known of a run."""

    record: RunRecord
    config: dict[str, Any]  # as saved: JSON, no class is imported
    rounds: tuple[Round, ...]  # oldest first, without those that a kill has lost
    final: float
    final_origin: str  # the episodes of the final score, in words

    @property
    def curve(self) -> list[Round]:
        """The rounds that were played because it was time: none was chosen for its score.

        The last point is the final score, if that is of the same parameters.
        """
        curve = [played for played in self.rounds if not played.score.is_confirmation]
        last = self.rounds[-1] if self.rounds else None
        if last is not None and last.score.is_confirmation:
            # It scores the parameters afresh that the round before has chosen: that round's score
            # is the higher for having been chosen.
            steps = last.score.env_steps
            curve = [each for each in curve if each.score.env_steps != steps] + [last]
        return curve

    @property
    def budget(self) -> int:
        return int(self.config["learning"]["total_steps"])

    def reached(self, threshold: float) -> Round | None:
        """The first round at or above a return; None without one."""
        # If the run itself had this target and asked for confirmation, only confirmations count.
        asked = self.config["evaluation"]
        confirms = asked.get("confirm_episodes") and asked.get("target_return") == threshold
        rounds = [each for each in self.rounds if each.score.is_confirmation or not confirms]
        return next((each for each in rounds if each.score.mean_return >= threshold), None)


class Group(NamedTuple):
    """Runs that differ only in their seed."""

    name: str  # of the configuration, with what tells it from others that are called the same
    runs: tuple[MeasuredRun, ...]  # by seed

    @property
    def task(self) -> str:
        """The environment that they play, with its arguments and wrappers."""
        return _task(self.runs[0].config["environment"])


def measure(folder: Path) -> MeasuredRun:
    """Reads the directory of a run. Raises ConfigError if it shows no score, or is not readable."""
    try:
        config = read_object(folder / run_files.CONFIG)["config"]
        _require_fields(config)
    # Not "has not trained yet": it may have.
    except PermissionError as error:
        raise ConfigError(f"{folder}: may not be read ({error.strerror})") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise ConfigError(
            f"expected a run that has started to train, got {folder}, which has no readable "
            f"{run_files.CONFIG}"
        ) from None
    rounds, kept = played_rounds(folder / run_files.METRICS), read_final_score(folder)
    # Fresh episodes come first: the last round may have been chosen for its score.
    if kept is not None:
        final = kept.mean
        origin = f"{kept.episodes} fresh {'exploring' if kept.exploration else 'greedy'}"
    elif rounds:
        last = rounds[-1].score
        final = last.mean_return
        origin = f"{'confirmation' if last.is_confirmation else 'last round'} of {last.episodes}"
    else:  # without a score a run shows nothing, however long it has trained
        raise ConfigError(
            f"{folder}: expected a round of evaluation in its {run_files.METRICS}, found none; "
            f"train it on, score it (seedrl evaluate {folder} --deterministic --save), or leave "
            "it out"
        )
    return MeasuredRun(
        record=read_run(folder),
        config=config,
        rounds=tuple(rounds),
        final=final,
        final_origin=f"{origin} episodes",
    )


def _require_fields(config: dict[str, Any]) -> None:
    # Those that are used here, of a file that may be anybody's.
    # A field that is missing or no number raises here, not in the middle of a table.
    steps, target = config["learning"]["total_steps"], config["evaluation"].get("target_return")
    if not 0 < int(steps) < 2**63 or not (target is None or -1e300 < target < 1e300):
        raise ValueError
    _task(config["environment"])


def _task(environment: dict[str, Any]) -> str:
    # With other arguments it may be another game, whose returns are on another scale.
    arguments = environment.get("arguments", "{}")
    name = environment["id"] + (f" {arguments}" if arguments != "{}" else "")
    return " + ".join([name, *environment.get("wrappers", ())])


def group(runs: Iterable[MeasuredRun]) -> list[Group]:
    """Groups runs, in the order in which their first ones come."""
    found: dict[str, list[MeasuredRun]] = {}
    for run in runs:
        # By text: fields may be lists, which are no keys.
        found.setdefault(json.dumps(_fields(run), sort_keys=True), []).append(run)
    # A name tells a group from the others, so all have to be found first.
    firsts = [same[0] for same in found.values()]
    return [
        Group(_name(same[0], firsts), tuple(sorted(same, key=lambda run: run.record.seed or 0)))
        for same in found.values()
    ]


def _name(run: MeasuredRun, firsts: Iterable[MeasuredRun]) -> str:
    alike = [_fields(each) for each in firsts if each.record.config == run.record.config]
    own = _fields(run)
    differing = [
        path
        for path in dict.fromkeys(path for fields in alike for path in fields)
        if len({json.dumps(fields.get(path)) for fields in alike}) > 1
    ]
    words = [f"{path}={json.dumps(own.get(path))}" for path in differing]
    return " ".join([run.record.config, *words])


def _fields(run: MeasuredRun) -> dict[str, Any]:
    return {
        path: value
        for path, value in leaves_of(run.config)
        if path not in _IGNORED and not path.startswith(_IGNORED_SECTIONS)
    }


def interquartile_mean(scores: ArrayLike, axis: int = -1) -> Floats:
    """Mean of the middle half of `[..., n]`: a quarter, rounded down, is cut from each end.

    So of three scores it is the mean, of five the mean of the middle three.
    """
    from scipy.stats import trim_mean

    return np.asarray(trim_mean(scores, 0.25, axis=axis))


def probability_of_improvement(a: ArrayLike, b: ArrayLike, axis: int = -1) -> Floats:
    """P(A > B) of a score of `[..., n]` and one of `[..., m]`; ties count half.

    That is the Mann-Whitney statistic U of A, divided by n m.
    """
    left, right = np.moveaxis(np.asarray(a), axis, -1), np.moveaxis(np.asarray(b), axis, -1)
    one, other = left[..., :, None], right[..., None, :]
    return np.asarray(((one > other) + 0.5 * (one == other)).mean(axis=(-2, -1)))


# Both ends of a 95 % confidence interval, included.
Interval = tuple[float, float]


def interval(samples: Sequence[Sequence[float]], statistic: Callable[..., Floats]) -> Interval:
    """95 % percentile bootstrap interval; each sample is resampled by itself, seed 0."""
    from scipy.stats import bootstrap

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # equal scores have an interval of no width
        found = bootstrap(
            samples,
            statistic,
            n_resamples=10_000,
            method="percentile",
            random_state=np.random.default_rng(0),  # the same runs give the same interval
        ).confidence_interval
    return float(found.low), float(found.high)


class Spread(NamedTuple):
    """A number of each run: mean, interquartile mean with its interval (None of one), and each."""

    mean: float
    iqm: float
    interval: Interval | None
    each: list[float]


class Numbers(NamedTuple):
    """A group's final scores, and when it reached a return."""

    name: str
    task: str
    runs: tuple[MeasuredRun, ...]
    final: Spread
    threshold: float | None
    # Until each run reached that return; infinite for one that never did.
    steps: list[float]
    seconds: list[float]


class Pair(NamedTuple):
    """Groups with the letters `a` and `b` on one task."""

    a: str
    b: str
    task: str
    probability: float  # that a run of A has a larger final score than one of B; ties count half
    # None if either group has a single run, or no run of one is as good as any of the other:
    # resampling would show no spread, however few they are.
    interval: Interval | None


class Comparison(NamedTuple):
    """Numbers of all groups by their letters, those of `--against` last, and of pairs of them."""

    groups: dict[str, Numbers]
    pairs: list[Pair]


def compare(
    groups: Sequence[Group], against: Sequence[Group], threshold: float | None
) -> Comparison:
    """Each of `groups` with each of `against` that plays the same.

    `threshold`: a return; None for the target that all runs of a task have. Raises ConfigError if
    the two sides play different environments.
    """
    tasks = [{each.task for each in side} for side in (groups, against)]
    # Returns of two environments are not on one scale.
    if against and tasks[0] != tasks[1]:
        raise ConfigError(
            "--against: expected runs of the same environments on both sides, got "
            f"{', '.join(sorted(tasks[0]))} against {', '.join(sorted(tasks[1]))}"
        )
    both = [*groups, *against]
    found = {
        _letter(place): numbers(
            each, target_of(each.task, both) if threshold is None else threshold
        )
        for place, each in enumerate(both)
    }
    letters = list(found)
    pairs = [
        Pair(a, b, found[a].task, *_improvement(found[a].final.each, found[b].final.each))
        for a in letters[: len(groups)]
        for b in letters[len(groups) :]
        if found[a].task == found[b].task
    ]
    return Comparison(found, pairs)


def numbers(group: Group, threshold: float | None) -> Numbers:
    """What the group shows; `threshold` is a return."""
    # Where there is no threshold, no run reaches it.
    rounds = [run.reached(math.inf if threshold is None else threshold) for run in group.runs]
    steps = [math.inf if each is None else each.score.env_steps for each in rounds]
    seconds = [math.inf if each is None else each.seconds for each in rounds]
    final = _spread([run.final for run in group.runs])
    return Numbers(group.name, group.task, group.runs, final, threshold, steps, seconds)


def target_of(task: str, groups: Sequence[Group]) -> float | None:
    """The return that all runs of a task had as their target; None if they differ, or had none."""
    runs = [run for each in groups if each.task == task for run in each.runs]
    targets = {run.config["evaluation"].get("target_return") for run in runs}
    return targets.pop() if len(targets) == 1 else None  # else it would be no target of all


def _improvement(a: list[float], b: list[float]) -> tuple[float, Interval | None]:
    probability = float(probability_of_improvement(a, b))
    has_spread = min(len(a), len(b)) > 1 and 0 < probability < 1
    return probability, interval([a, b], probability_of_improvement) if has_spread else None


def _spread(each: list[float]) -> Spread:
    # Of one run nothing can be resampled.
    bounds = interval([each], interquartile_mean) if len(each) > 1 else None
    return Spread(mean(each), float(interquartile_mean(each)), bounds, each)


def _letter(place: int) -> str:
    return string.ascii_uppercase[place % 26] + str(place // 26 or "")


def lines(comparison: Comparison) -> Iterator[str]:
    """The comparison, line by line."""
    groups = comparison.groups
    for task in dict.fromkeys(each.task for each in groups.values()):
        yield task
        for letter, each in groups.items():
            if each.task == task:
                yield f"  {letter}  {_title(each)}"
                yield from (f"       {label:<17}{text}" for label, text in _rows(each))
    for a, b, task, probability, bounds in comparison.pairs:
        yield f"{task}: P({a} > {b}) = {probability:.2f}{_bounds(bounds, '.2f')} (final scores)"
    if any(1 < len(each.runs) < 10 for each in groups.values()):
        yield f"note: {_CAUTION}"


def _title(each: Numbers) -> str:
    number, s = len(each.runs), "s" * (len(each.runs) != 1)
    seeds = " ".join(str(run.record.seed) for run in each.runs)
    finished = sum(run.record.state == "finished" for run in each.runs)
    state = "" if finished == number else f", {finished} of them finished"
    budget = f"budget {each.runs[0].budget:,} steps"
    return f"{each.name}: {number} run{s}, seed{s} {seeds}, {budget}{state}"


def _rows(each: Numbers) -> Iterator[tuple[str, str]]:
    origins = ", ".join(sorted({run.final_origin for run in each.runs}))
    yield "final score", f"{_spread_text(each.final)}   ({origins})"
    if each.threshold is not None:
        yield f"to {each.threshold:g}", _reached_text(each)


def _reached_text(each: Numbers) -> str:
    number = sum(map(math.isfinite, each.steps))
    text = f"reached by {number} of {len(each.steps)} runs"
    if not number:
        return text
    steps, seconds = _whole(median(each.steps)), _whole(median(each.seconds))
    # Of fewer than half there is none.
    of_half = "" if steps == "never" else f"median {steps} steps and {seconds} s; "
    return f"{text}: {of_half}steps {' '.join(map(_whole, each.steps))}"


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


def as_json(comparison: Comparison) -> dict[str, Any]:
    """The same numbers as JSON values; null for what is not finite: a run that never got there."""
    groups = [
        {
            **each._asdict(),
            "letter": letter,
            "budget": each.runs[0].budget,
            "final": each.final._asdict(),
            "runs": [str(run.record.folder) for run in each.runs],
            "seeds": [run.record.seed for run in each.runs],
        }
        for letter, each in comparison.groups.items()
    ]
    pairs = [pair._asdict() for pair in comparison.pairs]
    found: dict[str, Any] = plain({"groups": groups, "pairs": pairs})
    return found


def png(comparison: Comparison) -> bytes:
    """The picture: a row for each task, its curves over steps and over seconds."""
    tasks = list(dict.fromkeys(each.task for each in comparison.groups.values()))

    def draw(figure: "Figure") -> None:
        for row, task in enumerate(tasks):
            over_steps = figure.add_subplot(len(tasks), 2, 2 * row + 1)
            # Beside each other with one scale of returns: the same curves over another axis.
            over_seconds = figure.add_subplot(len(tasks), 2, 2 * row + 2, sharey=over_steps)
            for axes, position in (
                (over_steps, lambda each: each.score.env_steps),
                (over_seconds, lambda each: each.seconds),
            ):
                _draw(axes, comparison, task, position)
            over_steps.set(xlabel="training environment steps", ylabel="mean return", title=task)
            over_seconds.set(xlabel="seconds since the start of the run, when the score was known")
            if over_steps.lines:
                over_steps.legend(fontsize="small")

    return picture((13, 4.8 * len(tasks)), draw)


def _draw(
    axes: "Axes",
    comparison: Comparison,
    task: str,
    position: Callable[[Round], float],
) -> None:
    for place, (letter, numbers) in enumerate(comparison.groups.items()):
        runs = numbers.runs
        if numbers.task != task:
            continue
        color: dict[str, Any] = {"color": f"C{place % 10}"}
        # Between two rounds a curve is straight; before the first and behind the last it is level.
        curves = [
            np.transpose(sorted((position(each), each.score.mean_return) for each in run.curve))
            for run in runs
            if run.curve
        ]
        if not curves:
            continue
        # To the end of the longest curve: a shorter one keeps its last score there.
        points = np.linspace(0.0, max(curve[0, -1] for curve in curves), 60)
        middle = interquartile_mean([np.interp(points, *curve) for curve in curves], axis=0)
        # The statistic of the table, at each point of the axis.
        axes.plot(points, middle, label=f"{letter}  {numbers.name} ({len(curves)})", **color)
        for curve in curves:
            axes.plot(*curve, lw=0.6, alpha=0.4, **color)
        if numbers.threshold is not None:
            axes.axhline(numbers.threshold, color="black", linestyle="--", linewidth=1)
    axes.grid(alpha=0.3)
