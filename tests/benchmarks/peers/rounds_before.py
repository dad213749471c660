"""Adding to rounds that an earlier run has written down."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from learner.bench.measuring import Result


def added(earlier: Mapping[str, Any], result: Result) -> Result:
    """`result` with the rounds of its name in `earlier` before its own.

    `earlier` is what `learner.cli.bench.write` wrote. Joined rounds have no details: those describe
    one run. Raises ValueError if something else was measured earlier.
    """
    before = next((each for each in earlier["rows"] if each["name"] == result.name), None)
    if before is None:
        return result
    for key, value in (
        ("conditions", dict(result.conditions)),
        ("unit", result.unit),
        ("limit_name", result.limit_name),
    ):
        if before[key] != value:
            raise ValueError(
                f"{result.name}: expected the same {key} as in the earlier run, {before[key]}, got "
                f"{value}; write to another file"
            )
    return dataclasses.replace(
        result,
        ours=(*before["ours"]["rounds"], *result.ours),
        limits=(*before["limit"]["rounds"], *result.limits),
        details={},
    )
