"""Adding to rounds that an earlier run has written down."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from learner.bench.row import Row


def added(earlier: Mapping[str, Any], rows: Sequence[Row]) -> list[Row]:
    """`rows`, each with the rounds of its name in `earlier` (see `report.to_json`) before its own.

    Details are dropped: they speak of one run. Raises ValueError if something else was measured
    earlier.
    """
    before = {row["name"]: row for row in earlier["rows"]}
    return [_extended(row, before[row.name]) if row.name in before else row for row in rows]


def _extended(row: Row, before: Mapping[str, Any]) -> Row:
    for key, value in (
        ("conditions", vars(row.conditions)),
        ("unit", row.unit),
        ("limit_name", row.limit_name),
    ):
        if before[key] != value:
            raise ValueError(
                f"{row.name}: expected the same {key} as in the earlier run, {before[key]}, got "
                f"{value}; write to another file"
            )
    return dataclasses.replace(
        row,
        ours=(*before["ours"]["rounds"], *row.ours),
        limits=(*before["limit"]["rounds"], *row.limits),
        details={},
    )
