"""Calls of a user's own functions: what they raise becomes one line, with the place in their file.

Everything else that is raised stays as it is: a defect of ours is no mistake of theirs.
"""

import dataclasses
import functools
import inspect
import sys
import traceback
from collections.abc import Callable
from typing import Any, TypeVar

from seedrl.errors import ConfigError, UserError

Result = TypeVar("Result")

# Whose frames lie between a mistake and where it shows; the standard library's do too.
_LIBRARIES = frozenset(
    (
        *("chex", "distrax", "einops", "equinox", "flax", "haiku", "jax", "jaxlib", "jaxtyping"),
        *("learner", "numpy", "optax", "rlax", "seedrl", "tyro"),
    )
)
_LONGEST_TEXT = 300


def call(
    what: str, function: Callable[..., Result], *arguments: Any, own: object = None, **keywords: Any
) -> Result:
    """What `function` gives. Raises ConfigError, in one line, for what code of a user's own raises.

    Args:
      what: the field that holds the function, for the message: `agent.act (MyConfig)`.
      function, arguments, keywords: what is called, with what.
      own: the object that the function is from. If that, or a dataclass that it holds, is of a
        user's own class, so is whatever is wrong, even where only frames of libraries show it.
    """
    try:
        return function(*arguments, **keywords)
    except UserError:
        raise
    except Exception as error:
        place = own_place(error) or _definition(function) or _own_class(own)
        if not place:
            raise
        text = " ".join(str(error).split())
        shown = text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}..."
        raise ConfigError(f"{what}: {type(error).__name__}: {shown} ({place})") from error


def own_place(error: Exception) -> str:
    """The innermost line of a user's own code that led to an error; empty if there is none."""
    places = [
        f"{frame.f_code.co_filename}:{line}"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if _is_own(frame.f_globals.get("__name__")) and frame.f_code.co_filename[0] != "<"
    ]
    return places[-1] if places else ""


def named(function: Any) -> str:
    """A function in a message, with its place if it is a user's own: `loss, my_agent.py:12`."""
    inner = _unwrapped(function)
    name = getattr(inner, "__qualname__", type(inner).__qualname__)
    place = _definition(function)
    return f"{name}, {place}" if place else name


def _own_class(value: Any) -> str:
    """Where the first class of a user's own begins that a dataclass is of, or consists of."""
    if place := _definition(type(value)):
        return place
    is_instance = dataclasses.is_dataclass(value) and not isinstance(value, type)
    fields = dataclasses.fields(value) if is_instance else ()
    return next(filter(None, (_own_class(getattr(value, field.name)) for field in fields)), "")


def _definition(thing: Any) -> str:
    """Where a function or class of a user's own begins; empty for one of a library."""
    inner = _unwrapped(thing)
    if not _is_own(getattr(inner, "__module__", None)):
        return ""
    try:
        file, (_, line) = inspect.getsourcefile(inner), inspect.getsourcelines(inner)
    except (OSError, TypeError):  # of no file
        return ""
    return f"{file}:{line}"


def _unwrapped(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.unwrap(function) if callable(function) else function


def _is_own(module: Any) -> bool:
    name = str(module or "builtins").partition(".")[0]
    return name not in _LIBRARIES and name not in sys.stdlib_module_names
