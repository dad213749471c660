"""Rounds of an earlier run come first, and only if the same thing was measured."""

import dataclasses

import pytest

from learner.bench.measuring import Result
from tests.benchmarks.peers import rounds_before

ROW = Result(
    name="a figure",
    unit="s",
    limit_name="a peer",
    ours=(3.0,),
    limits=(1.0,),
    conditions={"batch": "64"},
)


def earlier(*results: Result) -> dict[str, object]:
    return {"rows": [result.to_json() for result in results]}


def test_rounds_are_joined_by_name_in_the_order_of_the_runs() -> None:
    other = dataclasses.replace(ROW, name="another figure")
    before = dataclasses.replace(ROW, ours=(1.0, 2.0), limits=(4.0, 5.0))
    detailed = dataclasses.replace(ROW, details={"of the last run": 1.0})
    joined = rounds_before.added(earlier(other, before), detailed)
    assert joined == dataclasses.replace(ROW, ours=(1.0, 2.0, 3.0), limits=(4.0, 5.0, 1.0))
    assert rounds_before.added(earlier(other), detailed) == detailed


@pytest.mark.parametrize(
    "changed", [{"unit": "ms"}, {"limit_name": "x"}, {"conditions": {"batch": "32"}}]
)
def test_rounds_of_something_else_are_refused(changed: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="a figure: expected the same .* write to another file"):
        rounds_before.added(earlier(dataclasses.replace(ROW, **changed)), ROW)
