"""Fields of configuration dataclasses: their types, their ranges, and other values for some."""

import contextlib
import dataclasses
import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

from seedrl.errors import ConfigError

Value = TypeVar("Value", bound=Any)


class Range(NamedTuple):
    """The numbers that a field may hold, as metadata of its type."""

    expected: str  # for messages
    holds: Callable[[float], bool]


PositiveInt = Annotated[int, Range("at least 1", lambda number: number >= 1)]
NonNegativeInt = Annotated[int, Range("at least 0", lambda number: number >= 0)]
PositiveFloat = Annotated[float, Range("a number above 0", lambda number: number > 0)]
NonNegativeFloat = Annotated[float, Range("at least 0", lambda number: number >= 0)]
AtLeastOne = Annotated[float, Range("at least 1", lambda number: number >= 1)]
Fraction = Annotated[float, Range("0 to 1", lambda number: 0 <= number <= 1)]
PositiveFraction = Annotated[PositiveFloat, Range("at most 1", lambda number: number <= 1)]
# Of a moving average: with 1 it would never move.
Decay = Annotated[float, Range("at least 0 and less than 1", lambda number: 0 <= number < 1)]


def check_fields(path: str, value: Any) -> None:
    """Raises ConfigError for the first field, at any depth, of a wrong type or out of its range.

    Dataclasses take any value, and the mistake would show as a traceback of the code that computes
    with it. `path` is the place of `value`, a dataclass, with a dot at its end; "" for the root.
    """
    _check_declared(path.removesuffix("."), type(value))
    hints = hints_of(type(value), with_ranges=True)
    for each in dataclasses.fields(value):
        item = getattr(value, each.name)
        if fault := _fault(item, hints.get(each.name, Any)):
            raise ConfigError(f"{path}{each.name}: expected {fault}, got {item!r:.60}")
        if dataclasses.is_dataclass(item) and not isinstance(item, type):
            check_fields(f"{path}{each.name}.", item)


def hints_of(kind: type, *, with_ranges: bool = False) -> dict[str, Any]:
    """The types of a dataclass's fields, but for classes with names that are for checkers only."""
    hints: dict[str, Any] = {}
    for each in reversed(kind.__mro__):
        with contextlib.suppress(NameError):  # only of that class: inherited fields keep theirs
            hints |= typing.get_type_hints(each, include_extras=with_ranges)
    return hints


def _check_declared(path: str, kind: type) -> None:
    # A user's subclass without `@dataclass`, or that gives a field a value without its type, keeps
    # the inherited values, and nothing else would say so.
    fields = {each.name for each in dataclasses.fields(kind)}
    for base in kind.__mro__:
        typed, members = inspect.get_annotations(base), vars(base)
        lost = {
            name
            for name in fields & members.keys() - typed.keys()
            if not isinstance(members[name], property)
        }
        if dataclasses.is_dataclass(base) and "__dataclass_fields__" not in members:
            lost |= {name for name, hint in typed.items() if "ClassVar" not in str(hint)}
        if lost:
            raise ConfigError(
                f"{path}: class {base.__name__} sets {', '.join(sorted(lost))} without effect; "
                "write @dataclass(frozen=True, kw_only=True) above it, and the type of each field"
            )
        # Classes behind the one that declares a field change nothing of it.
        fields -= typed.keys()


def _fault(value: Any, hint: Any) -> str | None:
    # What is expected in place of `value`; None if it fits.
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        ranges = [mark for mark in hint.__metadata__ if isinstance(mark, Range)]
        out_of = (each.expected for each in ranges if not each.holds(value))
        return _fault(value, arguments[0]) or next(out_of, None)
    if origin is Literal:
        return None if value in arguments else " or ".join(map(repr, arguments))
    if origin in (Union, types.UnionType):
        faults = [_fault(value, argument) for argument in arguments]
        return None if None in faults else " or ".join(map(str, faults))
    if origin is tuple and len(arguments) == 2 and arguments[1] is ...:
        if not isinstance(value, tuple | list):
            return "a tuple"
        return next(filter(None, (_fault(item, arguments[0]) for item in value)), None)
    if hint is Any:
        return _fault_of_class(value, float) if isinstance(value, float) else None
    if origin is not None or not isinstance(hint, type):
        return None  # for the class itself to check
    return _fault_of_class(value, hint)


def _fault_of_class(value: Any, kind: type) -> str | None:
    if kind in (int, float) and isinstance(value, bool):
        is_right = False  # an int to Python
    elif kind is float:
        # NaN would pass through comparisons that are written the other way round; no arithmetic: a
        # whole number may be too large for a float.
        is_right = isinstance(value, int | float) and abs(value) <= sys.float_info.max
    elif kind is int:
        # As many bits as an array's: no sum of it is too large for a float.
        is_right = isinstance(value, int) and abs(value) < 2**63
    else:
        is_right = isinstance(value, kind)
        # Protobuf refuses the surrogates that Python has in place of bytes that are no UTF-8.
        if isinstance(value, str) and value != value.encode(errors="replace").decode():
            return "text in UTF-8"
    names = {float: "a finite number", int: "a whole number", type(None): "None"}
    return None if is_right else names.get(kind, kind.__name__)


def with_fields(value: Value, fields: Mapping[str, Any]) -> Value:
    """A tree of dataclasses with other values at these paths, such as `agent.learning_rate`.

    All values of one dataclass change together: one after the other could break its rules, whose
    errors it raises.
    """
    changes: dict[str, Any] = {}
    below: dict[str, dict[str, Any]] = {}
    for path, new in fields.items():
        name, _, rest = path.partition(".")
        if rest:
            below.setdefault(name, {})[rest] = new
        else:
            changes[name] = new
    for name, inner in below.items():
        changes.setdefault(name, with_fields(getattr(value, name), inner))
    return dataclasses.replace(value, **changes)


def fields_of(value: Any, prefix: str = "") -> dict[str, Any]:
    """The values of all fields by their paths, `agent.unroll`; those of dataclasses one by one."""
    found: dict[str, Any] = {}
    for each in dataclasses.fields(value):
        item = getattr(value, each.name)
        if dataclasses.is_dataclass(item) and not isinstance(item, type):
            found |= fields_of(item, f"{prefix}{each.name}.")
        else:
            found[f"{prefix}{each.name}"] = item
    return found
