"""Whether a configuration's fields are declared, and its values of their types and ranges."""

import dataclasses
import inspect
import math
import types
import typing
from collections.abc import Collection, Mapping
from typing import Any, Literal, Union, get_args, get_origin

from seedrl.errors import ConfigError


def check_types(path: str, value: Any) -> None:
    """Raises ConfigError for the first field, at any depth, that holds a value of another type.

    Nothing else would: dataclasses take whatever they are given, and what is wrong would show as a
    traceback of whoever computes with it. So it is with fields that a class of a user's own does
    not declare as a dataclass must: their values would be lost without a word.

    Args:
      path: where `value` is, for the message, with a dot at its end; "" for the root.
      value: a dataclass.
    """
    fields = {field.name for field in dataclasses.fields(value)}
    for kind in type(value).__mro__:
        _check_declared(path.removesuffix("."), kind, fields)
        # What stands behind the class that declares a field changes nothing of it.
        fields -= set(inspect.get_annotations(kind))
    try:
        hints = typing.get_type_hints(type(value))
    except NameError:  # names that only type checkers know, of a class of a user's own
        hints = {}
    if any(field.name == "type" for field in dataclasses.fields(value)):
        raise ConfigError(
            f"{path}type: expected another name, `kind` say, for saved configurations name the "
            f"class {type(value).__name__} by this one"
        )
    for field in dataclasses.fields(value):
        item, hint = getattr(value, field.name), hints.get(field.name, Any)
        if not _fits(item, hint):
            name = hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")
            raise ConfigError(f"{path}{field.name}: expected {name}, got {_show(item)}")
        if dataclasses.is_dataclass(item) and not isinstance(item, type):
            check_types(f"{path}{field.name}.", item)


def check_ranges(
    path: str, value: Any, ranges: Mapping[str, tuple[float, float]], positive: Collection[str]
) -> None:
    """Raises ValueError for the first field out of its range, or of `positive` not above 0.

    `path` as in `check_types`, which is to be called before; of `ranges` inf is no limit.
    """
    for name, (lowest, highest) in ranges.items():
        number = getattr(value, name)
        if not lowest <= number <= highest:
            limits = f"at least {lowest}" if highest == math.inf else f"{lowest} to {highest}"
            raise ValueError(f"{path}{name}: expected {limits}, got {number}")
    for name in positive:
        if not getattr(value, name) > 0:
            raise ValueError(f"{path}{name}: expected more than 0, got {getattr(value, name)}")


def _check_declared(path: str, kind: type, fields: Collection[str]) -> None:
    annotations, members = inspect.get_annotations(kind), vars(kind)
    declared = [name for name, hint in annotations.items() if "ClassVar" not in str(hint)]
    if declared and "__dataclass_fields__" not in members and dataclasses.is_dataclass(kind):
        raise ConfigError(
            f"{path}: expected @dataclass(frozen=True, kw_only=True) above class {kind.__name__}, "
            f"found none; without it {', '.join(declared)} would be no field of it: add that line"
        )
    for name in fields:
        if name in members and name not in annotations and not isinstance(members[name], property):
            raise ConfigError(
                f"{path}.{name}: expected class {kind.__name__} to give the field a type, got "
                f"`{name} = {_show(members[name])}`, which changes nothing; write `{name}: "
                f"{type(members[name]).__name__} = ...`"
            )


def _fits(value: Any, hint: Any) -> bool:
    if hint is Any:
        return True
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
    # Whatever else there may be is not for this function to judge.
    return not isinstance(hint, type) or origin is not None or isinstance(value, hint)


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
