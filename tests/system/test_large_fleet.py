"""What the record of a large fleet promises is looked at."""

from typing import Any

import pytest

from tests.system.large_fleet import verdict

KEPT: dict[str, Any] = {
    "lost_sessions": 0,
    "residue": 0,
    "exit_code": 0,
    "slowest_assign_seconds": 1.9,
    "killed": 100,
    "return_seconds": 30.0,
    "return_bound_seconds": 31.0,
    "of_linear": 0.91,
    "least_of_linear": 0.9,
}


def test_a_fleet_that_stays_and_returns_has_broken_nothing() -> None:
    assert verdict(KEPT) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lost_sessions", 1),
        ("residue", -3),
        ("exit_code", 70),
        ("slowest_assign_seconds", 2.1),
        ("return_seconds", 31.5),
        ("of_linear", 0.89),
    ],
)
def test_each_promise_is_looked_at(name: str, value: float) -> None:
    assert len(verdict({**KEPT, name: value})) == 1
