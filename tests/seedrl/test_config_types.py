"""Values of a configuration are of the types that its fields declare."""

import dataclasses
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest

from seedrl.config_types import check_types
from seedrl.errors import ConfigError


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


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"limit": 3, "inner": Inner(ratio=2)},  # an int is a number too
        {"inner": Inner(names=["a"])},  # type: ignore[arg-type]
        {"agent": "whatever"},
    ],
)
def test_what_fits_passes(values: dict[str, Any]) -> None:
    check_types("", dataclasses.replace(Outer(), **values))


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"number": "3"}, "number: expected int, got '3'"),
        ({"number": True}, "number: expected int, got True"),
        ({"is_on": 1}, "is_on: expected bool, got 1"),
        ({"limit": "x" * 100}, f"limit: expected float | None, got '{'x' * 59}..."),
        ({"mode": "c"}, "mode: expected Literal['a', 'b'], got 'c'"),
        ({"folder": "runs"}, "folder: expected Path, got 'runs'"),
        ({"inner": None}, "inner: expected Inner, got None"),
        ({"inner": Inner(names=("a", 3))}, "inner.names: expected tuple[str, ...], got ('a', 3)"),  # type: ignore[arg-type]
        ({"agent": Inner(ratio="r")}, "agent.ratio: expected float, got 'r'"),  # type: ignore[arg-type]
    ],
)
def test_what_does_not_is_named(values: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_types("", dataclasses.replace(Outer(), **values))
    assert str(caught.value) == line


def test_a_class_whose_types_cannot_be_known_is_let_pass() -> None:
    @dataclass(frozen=True)
    class Own:
        spec: "NoSuchName" = 3  # type: ignore[name-defined]  # noqa: F821

    check_types("", Own())


@dataclass(frozen=True)
class Decorated(Inner):
    sizes: int = 3


class WithoutDataclass(Inner):
    penalty: float = 0.1
    limit: "int" = 3


class WithoutType(Inner):
    ratio = 2.0


@dataclass(frozen=True)
class DecoratedWithoutType(Inner):
    ratio = 2.0


@dataclass(frozen=True)
class Further(WithoutDataclass):
    more: int = 3


class PlainFirst:
    ratio = 2.0


@dataclass(frozen=True)
class MixedIn(PlainFirst, Inner):
    """Has the ratio of Inner."""


class Constants(Inner):
    """Adds what is no field."""

    LIMIT: ClassVar[int] = 3
    other = 4


@pytest.mark.parametrize(
    ("value", "line"),
    [
        (
            WithoutDataclass(),
            "agent: expected @dataclass(frozen=True, kw_only=True) above class WithoutDataclass, "
            "found none; without it penalty, limit would be no field of it: add that line",
        ),
        (Further(), "agent: expected @dataclass(frozen=True, kw_only=True) above class WithoutDat"),
        (
            WithoutType(),
            "agent.ratio: expected class WithoutType to give the field a type, got `ratio = 2.0`, "
            "which changes nothing; write `ratio: float = ...`",
        ),
        (MixedIn(), "agent.ratio: expected class PlainFirst to give the field a type, got `ratio"),
        (DecoratedWithoutType(), "agent.ratio: expected class DecoratedWithoutType to give the fi"),
    ],
)
def test_a_field_that_would_be_lost_is_named(value: Any, line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_types("", dataclasses.replace(Outer(), agent=value))
    assert str(caught.value).startswith(line)


@dataclass(frozen=True)
class Typed:
    type: str = "gru"


def test_a_field_named_as_saved_configurations_name_the_class_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^agent\.type: expected another name"):
        check_types("", dataclasses.replace(Outer(), agent=Typed()))


class Plain:
    """No dataclass, with names that a dataclass after it declares as fields."""

    ratio = 1

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True)
class Declared(Plain):
    ratio: float = 2.0  # type: ignore[assignment]
    names: tuple[str, ...] = ("a",)  # type: ignore[assignment]


@pytest.mark.parametrize("kind", [Decorated, Constants, Declared])
def test_a_class_that_only_adds_what_is_no_field_passes(kind: type) -> None:
    check_types("", dataclasses.replace(Outer(), agent=kind()))
