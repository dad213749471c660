"""A comparison in words, and as JSON."""

import math
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from learner.evidence.comparison import GroupNumbers, Improvement, Pair, Spread, Threshold
from learner.evidence.measured_run import MeasuredRun
from learner.evidence.statistics import Interval
from learner.reporting.json_lines import plain
from learner.reporting.wording import score

_LABEL_WIDTH = 17
_FEW_RUNS = 10
_CAUTION = (
    "intervals are 95 % percentile bootstrap of the interquartile mean (IQM); of few runs they are "
    "too narrow: they hold the true value in about 73 %, 85 % and 90 % of cases with 3, 5 and 10"
)
_PACE = {
    "env_steps_per_second": "{:,.0f} steps/s",
    "replay_ratio": "replay ratio {:.2f}",
    "policy_lag_updates": "policy lag {:.1f} updates",
}


class Comparison(NamedTuple):
    """All that is said.

    Attributes:
      groups: numbers of each; those of `--against` last.
      pairs: of groups, by their places.
      overall: of the final scores of several tasks.
      thresholds: the return that is asked for, by task; None if there is none.
    """

    groups: list[GroupNumbers]
    pairs: list[Pair]
    overall: Improvement | None
    thresholds: dict[str, float | None]


def lines(comparison: Comparison) -> Iterator[str]:
    """The comparison, line by line."""
    for task, threshold in comparison.thresholds.items():
        yield task
        for place, numbers in enumerate(comparison.groups):
            if numbers.group.task == task:
                yield f"  {letter(place)}  {_title(numbers)}"
                yield from _indented(_rows(numbers, threshold))
    for pair in comparison.pairs:
        a, b = letter(pair.a), letter(pair.b)
        yield f"{a} against {b}, {comparison.groups[pair.a].group.task}"
        measured = {"final score": pair.final, "area": pair.area, "fewer steps": pair.steps}
        yield from _indented(
            (label, _improvement(found, a, b)) for label, found in measured.items() if found
        )
    if comparison.overall is not None:
        yield "over all environments"
        yield from _indented([("final score", _improvement(comparison.overall, "RUN", "AGAINST"))])
    yield from _notes(comparison.groups)


def as_json(comparison: Comparison) -> dict[str, Any]:
    """The same numbers as JSON values; what is not finite, such as a run that never got there, is
    null."""
    groups = [
        {
            "letter": letter(place),
            "name": each.group.name,
            "task": each.group.task,
            "runs": [_run(run) for run in each.group.runs],
            "budget": each.budget,
            "final": _dict(each.final),
            "area": _dict(each.area),
            "threshold": comparison.thresholds[each.group.task],
            "reached": _dict(each.threshold),
            "pace": each.pace,
        }
        for place, each in enumerate(comparison.groups)
    ]
    pairs = [
        {
            "a": letter(pair.a),
            "b": letter(pair.b),
            **{name: _dict(getattr(pair, name)) for name in ("final", "area", "steps")},
        }
        for pair in comparison.pairs
    ]
    document = {"groups": groups, "pairs": pairs, "overall": _dict(comparison.overall)}
    found: dict[str, Any] = plain(document)
    return found


def letter(place: int) -> str:
    """What a group is called: A, B, ..., Z, AA."""
    first, last = divmod(place, 26)
    return (letter(first - 1) if first else "") + chr(ord("A") + last)


def _indented(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    return (f"       {label:<{_LABEL_WIDTH}}{text}" for label, text in rows)


def _notes(groups: Sequence[GroupNumbers]) -> Iterator[str]:
    if any(1 < len(each.group.runs) < _FEW_RUNS for each in groups):
        yield f"note: {_CAUTION}"
    if not all(run.final.is_fresh for each in groups for run in each.group.runs):
        yield (
            "note: some final scores are of rounds in training; `seedrl evaluate RUN --greedy "
            "--save` plays 100 fresh episodes"
        )


def _title(numbers: GroupNumbers) -> str:
    runs = numbers.group.runs
    seeds = " ".join(str(run.record.seed) for run in runs)
    finished = sum(run.record.state == "finished" for run in runs)
    state = "" if finished == len(runs) else f", {finished} of them finished"
    number = f"{len(runs)} run{'s' * (len(runs) != 1)}, seed{'s' * (len(runs) != 1)} {seeds}"
    return f"{numbers.group.name}: {number}, budget {numbers.budget:,} steps{state}"


def _rows(numbers: GroupNumbers, threshold: float | None) -> Iterator[tuple[str, str]]:
    runs = numbers.group.runs
    yield "command", _command(runs[0])
    machines = sorted({run.machine for run in runs} - {""})
    yield "machine", "; ".join(machines) or "not recorded"
    origins = ", ".join(sorted({run.final.origin for run in runs}))
    yield "final score", f"{_spread(numbers.final)}   ({origins})"
    if threshold is not None and numbers.threshold is not None:
        yield f"to {threshold:g}", _reached(numbers.threshold)
    yield "area / budget", _spread(numbers.area)
    known = [form.format(numbers.pace[key]) for key, form in _PACE.items() if key in numbers.pace]
    if known:
        yield "pace", ", ".join(known)


def _command(run: MeasuredRun) -> str:
    """What began the run, without what is its own."""
    words = shlex.split(run.command)
    for flag in ("--workdir", "--seed"):
        if flag in words:
            place = words.index(flag)
            del words[place : place + 2]
    return f"{shlex.join(words)} --seed S" if words else "not recorded"


def _spread(found: Spread) -> str:
    each = " ".join(map(score, found.each))
    return f"mean {score(found.mean)}, IQM {score(found.iqm)}{_bounds(found.interval)}: {each}"


def _reached(found: Threshold) -> str:
    if found.never == len(found.steps):
        return f"never, in {found.never} of {len(found.steps)} runs"
    never = f"; {found.never} of {len(found.steps)} never" if found.never else ""
    steps, seconds = _whole(found.median_steps), _whole(found.median_seconds)
    each = " ".join(map(_whole, found.steps))
    return f"median {steps} steps, {seconds} s{never}: {each} steps"


def _whole(value: float) -> str:
    return f"{value:,.0f}" if math.isfinite(value) else "never"


def _improvement(found: Improvement, a: str, b: str) -> str:
    p = "" if found.p is None else f", one-sided exact Mann-Whitney p = {found.p:.2g}"
    return f"P({a} > {b}) = {found.probability:.2f}{_bounds(found.interval, '.2f')}{p}"


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
        "final": run.final.mean,
        "final_origin": run.final.origin,
        "command": run.command,
        "machine": run.machine,
    }


def _dict(found: Any) -> Any:
    """A named tuple as names and values, those within it too."""
    if hasattr(found, "_asdict"):
        return {name: _dict(value) for name, value in found._asdict().items()}
    return found
