"""A benchmark's results as a table for people and as JSON for programs."""

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from learner.bench.measure.interleave import Pace, Spread, spread
from learner.bench.measure.result import Conditions, Result

_PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def table(results: Sequence[Result]) -> Table:
    """The results with medians, the ratio with its range, and the target if there is one."""
    lines = Table()
    for column in ("figure", "ours", "limit", "ratio", "target"):
        lines.add_column(column, overflow="fold")
    for result in results:
        colour = {True: "green", False: "red", None: "none"}[result.is_met]
        lines.add_row(
            result.name,
            f"{number(spread(result.ours).median)} {result.unit}",
            f"{number(spread(result.limits).median)} ({result.limit_name})",
            f"[{colour}]{_ratio(result.ratio)}[/]",
            "" if result.target is None else f"{'≤' if result.is_cost else '≥'} {result.target:g}",
        )
    return lines


def notes(results: Sequence[Result]) -> list[str]:
    """What each result was measured with, and its further numbers: a line for each result."""
    return [
        f"{result.name}: " + "; ".join(filter(None, (_text(result.conditions), _details(result))))
        for result in results
    ]


def to_json(results: Sequence[Result], machine: dict[str, Any], pace: Pace) -> dict[str, Any]:
    """Everything, as plain values."""
    return {
        "machine": machine,
        "pace": pace._asdict(),
        "rows": [result.to_json() for result in results],
    }


def number(value: float) -> str:
    """Three digits, and a prefix for thousands."""
    for factor, prefix in _PREFIXES:
        if abs(value) >= factor:
            return f"{value / factor:.3g}{prefix}"
    return f"{value:.3g}"


def _ratio(ratio: Spread) -> str:
    return f"{ratio.median:.2f} ({ratio.lowest:.2f}..{ratio.highest:.2f})"


def _text(conditions: Conditions) -> str:
    parts = {
        "replay ratio": conditions.replay_ratio,
        "window": conditions.window,
        "stride": conditions.stride,
        "network": conditions.network,
        "batch": conditions.batch,
        "messages": conditions.messages,
        "environments": conditions.environments,
    }
    return "; ".join(f"{name} {value}" for name, value in parts.items() if value not in (None, ""))


def _details(result: Result) -> str:
    return "; ".join(f"{name} {number(value)}" for name, value in result.details.items())
