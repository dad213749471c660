"""Fields of configuration dataclasses: their types, and other values for some."""

import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest

from seedrl.errors import ConfigError
from seedrl.fields import PositiveFloat, PositiveInt, check_fields, fields_of, with_fields


@dataclass(frozen=True)
class Inner:
    names: tuple[str, ...] = ()
    ratio: float = 1.0


@dataclass(frozen=True)
class Outer:
    number: int = 3
    limit: float | None = None
    is_on: bool = False
    mode: Literal["a", "b"] = "a"
    folder: Path = Path()
    inner: Inner = Inner()
    agent: Any = None
    pair: "tuple[int, str]" = (1, "x")
    sizes: tuple[PositiveInt, ...] = ()
    seconds: PositiveFloat | None = None


@dataclass(frozen=True)
class Decorated(Inner):
    sizes: int = 3


class WithoutDataclass(Inner):
    penalty: float = 0.1


class WithoutType(Inner):
    ratio = 2.0


@dataclass(frozen=True)
class DecoratedWithoutType(Inner):
    ratio = 2.0


@dataclass(frozen=True)
class ForCheckers(Inner):
    thing: "OnlyImportedForCheckers | None" = None  # type: ignore[name-defined]  # noqa: F821


class Constants(Inner):
    """Adds what is no field."""

    LIMIT: ClassVar[int] = 3
    other = 4


@dataclass(frozen=True)
class Pair:
    low: int = 1
    high: int = 2

    def __post_init__(self) -> None:
        if self.low >= self.high:
            raise ValueError("low")


def test_values_at_paths_change_together_and_nothing_else_does() -> None:
    other = with_fields(Outer(), {"number": 4, "inner.ratio": 0.1, "inner.names": ("a",)})
    assert other == Outer(number=4, inner=Inner(names=("a",), ratio=0.1))
    assert fields_of(other)["inner.ratio"] == 0.1 and "inner" not in fields_of(other)
    assert with_fields(Pair(), {"low": 5, "high": 6}) == Pair(5, 6)
    with pytest.raises(ValueError, match="low"):
        with_fields(Pair(), {"low": 5})


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"limit": 3, "inner": Inner(ratio=2)},  # an int is a number too
        {"sizes": (1, 2), "seconds": 0.5},
        {"inner": Inner(names=["a"])},  # type: ignore[arg-type]
        {"agent": "whatever"},
        *({"agent": kind()} for kind in (Decorated, Constants)),
    ],
)
def test_values_that_fit_their_types_pass(values: dict[str, Any]) -> None:
    check_fields("", dataclasses.replace(Outer(), **values))


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"number": "3"}, "number: "),
        ({"number": True}, "number: "),
        ({"number": 10**400}, "number: "),
        ({"is_on": 1}, "is_on: "),
        ({"limit": "x" * 1000}, "limit: "),
        ({"mode": "c"}, "mode: "),
        ({"inner": Inner(names=("\udcff",))}, "inner.names: expected text in UTF-8"),
        ({"folder": "runs"}, "folder: "),
        ({"inner": None}, "inner: "),
        ({"limit": math.nan}, "limit: "),
        ({"limit": 10**400}, "limit: "),
        ({"agent": math.nan}, "agent: "),
        ({"sizes": (1, 0)}, "sizes: "),
        ({"sizes": 1}, "sizes: "),
        ({"seconds": 0.0}, "seconds: "),
        ({"seconds": math.inf}, "seconds: "),
        ({"inner": Inner(names=("a", 3))}, "inner.names: "),  # type: ignore[arg-type]
        ({"agent": Inner(ratio="r")}, "agent.ratio: "),  # type: ignore[arg-type]
        ({"agent": ForCheckers(ratio="r")}, "agent.ratio: "),  # type: ignore[arg-type]
        # Their values would be lost without a word.
        ({"agent": WithoutDataclass()}, "agent: class WithoutDataclass sets penalty"),
        ({"agent": WithoutType()}, "agent: class WithoutType sets ratio"),
        ({"agent": DecoratedWithoutType()}, "agent: class DecoratedWithoutType sets ratio"),
    ],
)
def test_a_value_of_another_type_or_out_of_its_range_is_named(
    values: dict[str, Any], named: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        check_fields("", dataclasses.replace(Outer(), **values))
    assert str(caught.value).startswith(named) and len(str(caught.value)) < 300
