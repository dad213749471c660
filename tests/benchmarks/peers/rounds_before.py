"""Adding to rounds that an earlier run has written down."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from learner.bench.measure.result import Row


def added(earlier: Mapping[str, Any], row: Row) -> Row:
    """`row` with the rounds of its name in `earlier` (see `report.to_json`) before its own.

    Joined rounds have no details, which speak of one run. Raises ValueError if something else
    was measured earlier.
    """
    before = next((each for each in earlier["rows"] if each["name"] == row.name), None)
    if before is None:
        return row
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
