"""Fields of configuration dataclasses: their types, their ranges, and other values for some."""

import dataclasses
import inspect
import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from seedrl.errors import ConfigError

Value = TypeVar("Value", bound=Any)


# Ranges of numbers. NaN fails every comparison.
_RANGES: dict[str, tuple[str, Callable[[float], bool]]] = {
    "positive": ("a finite number above 0", lambda number: 0 < number < math.inf),
    "at_least_0": ("a finite number of at least 0", lambda number: 0 <= number < math.inf),
    "at_least_1": ("a finite number of at least 1", lambda number: 1 <= number < math.inf),
    "fractions": ("0 to 1", lambda number: 0 <= number <= 1),
    "below_1": ("at least 0 and less than 1", lambda number: 0 <= number < 1),
}


def check_fields(path: str, value: Any, **ranges: str) -> None:
    """Raises ConfigError for the first field of a wrong type, or out of its range.

    `ranges`: `positive`, `at_least_0`, `at_least_1`, `fractions` or `below_1`, each with the names
    of its fields and spaces between them. A field that is None is in every range; of a tuple every
    number must be. `path` is the place of `value`, a dataclass, with a dot at its end.
    """
    check_types(path, value)  # before anything is compared
    for kind, names in ranges.items():
        expected, is_allowed = _RANGES[kind]
        for name in names.split():
            found = getattr(value, name)
            numbers = found if isinstance(found, tuple) else (found,)
            if not all(number is None or is_allowed(number) for number in numbers):
                raise ConfigError(f"{path}{name}: expected {expected}, got {found}")


def check_types(path: str, value: Any) -> None:
    """Raises ConfigError for the first field, at any depth, that holds a value of another type.

    Dataclasses take any value, and the mistake would show as a traceback of the code that computes
    with it. `path` is the place of `value`, a dataclass, with a dot at its end; "" for the root.
    """
    _check_declared(path.removesuffix("."), type(value))
    hints = hints_of(type(value))
    for each in dataclasses.fields(value):
        item, hint = getattr(value, each.name), hints.get(each.name, Any)
        if not _fits(item, hint):
            name = hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")
            raise ConfigError(f"{path}{each.name}: expected {name}, got {item!r:.60}")
        if dataclasses.is_dataclass(item) and not isinstance(item, type):
            check_types(f"{path}{each.name}.", item)


def hints_of(kind: type) -> dict[str, Any]:
    """The types of a dataclass's fields; none if a user's own names are there for checkers only."""
    try:
        return typing.get_type_hints(kind)
    except NameError:
        return {}


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


def _fits(value: Any, hint: Any) -> bool:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return value in arguments
    if origin in (Union, types.UnionType):
        return any(_fits(value, argument) for argument in arguments)
    if origin is tuple and len(arguments) == 2 and arguments[1] is ...:
        return isinstance(value, tuple | list) and all(_fits(item, arguments[0]) for item in value)
    if hint in (int, float) and isinstance(value, bool):
        return False
    if hint is float:
        return isinstance(value, int | float)
    # Other types are for the class itself to check.
    return (
        hint is Any or origin is not None or not isinstance(hint, type) or isinstance(value, hint)
    )


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
