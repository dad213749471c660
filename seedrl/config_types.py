"""Whether the values of a configuration are of the types that its fields declare."""

import dataclasses
import types
import typing
from typing import Any, Literal, Union, get_args, get_origin

from seedrl.errors import ConfigError


def check_types(path: str, value: Any) -> None:
    """Raises ConfigError for the first field, at any depth, that holds a value of another type.

    Nothing else would: dataclasses take whatever they are given, and what is wrong would show as a
    traceback of whoever computes with it.

    Args:
      path: where `value` is, for the message, with a dot at its end; "" for the root.
      value: a dataclass.
    """
    try:
        hints = typing.get_type_hints(type(value))
    except NameError:  # names that only type checkers know, of a class of a user's own
        hints = {}
    for field in dataclasses.fields(value):
        item, hint = getattr(value, field.name), hints.get(field.name, Any)
        if not _fits(item, hint):
            name = hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")
            raise ConfigError(f"{path}{field.name}: expected {name}, got {_show(item)}")
        if dataclasses.is_dataclass(item) and not isinstance(item, type):
            check_types(f"{path}{field.name}.", item)


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
