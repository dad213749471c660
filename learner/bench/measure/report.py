"""A benchmark's rows as a table for people and as JSON for programs."""

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from learner.bench.measure.interleave import Pace, Spread, spread
from learner.bench.measure.result import Conditions, Row

_PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def table(rows: Sequence[Row]) -> Table:
    """The rows with medians, the ratio with its range, and the target if there is one."""
    result = Table()
    for column in ("figure", "ours", "limit", "ratio", "target"):
        result.add_column(column, overflow="fold")
    for row in rows:
        colour = {True: "green", False: "red", None: "none"}[row.is_met]
        result.add_row(
            row.name,
            f"{number(spread(row.ours).median)} {row.unit}",
            f"{number(spread(row.limits).median)} ({row.limit_name})",
            f"[{colour}]{_ratio(row.ratio)}[/]",
            "" if row.target is None else f"{'≤' if row.is_cost else '≥'} {row.target:g}",
        )
    return result


def notes(rows: Sequence[Row]) -> list[str]:
    """What each row was measured with, and its further numbers: a line for each row."""
    return [
        f"{row.name}: " + "; ".join(filter(None, (_text(row.conditions), _details(row))))
        for row in rows
    ]


def to_json(rows: Sequence[Row], machine: dict[str, Any], pace: Pace) -> dict[str, Any]:
    """Everything, as plain values."""
    return {
        "machine": machine,
        "pace": pace._asdict(),
        "rows": [row.to_json() for row in rows],
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


def _details(row: Row) -> str:
    return "; ".join(f"{name} {number(value)}" for name, value in row.details.items())
