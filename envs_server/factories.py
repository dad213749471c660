"""Which Python callables a learner may name: `package.module:factory`, checked against patterns."""

import fnmatch
import importlib
import re
from collections.abc import Callable, Sequence
from typing import Any, Literal

from envs_server.errors import BuildError, one_line

# What ships with the env server is always allowed.
OWN_PATTERN = "envs_server.envs.*"

# For an environment that gymnasium knows once its package is imported.
ADVICE = "write a factory that imports its package and returns gymnasium.make(...), and name that"

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)


def is_factory(name: str) -> bool:
    """Whether `name` means a factory rather than a registered gymnasium id."""
    return ":" in name


def load_factory(
    name: str, allowed: Sequence[str], kind: Literal["environment", "wrapper"] = "environment"
) -> Callable[..., Any]:
    """The callable that `name` (`package.module:factory`) stands for.

    `allowed` are shell patterns (`*`, `?`, `[a-z]`) for the whole name; nothing is imported before
    one matches. The name under which the callable was defined must match too, so that a module that
    is allowed does not lend out what it merely imported.

    Raises BuildError.
    """
    if not _NAME.fullmatch(name):
        expected = "package.module:factory for a wrapper"
        if kind == "environment":
            expected = "a registered gymnasium id or package.module:factory"
        raise BuildError(
            f"expected {expected}, got {name!r}; gymnasium's own module:id is not supported: "
            f"{ADVICE}"
        )
    _check(name, name, allowed)
    module_name, _, attribute = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # a module may end the process that imports it
        reason = one_line(error)
        if isinstance(error, ModuleNotFoundError):
            reason += "; install it where the env server runs, or add its folder to PYTHONPATH"
        raise BuildError(f"cannot import {module_name} for {kind} {name}: {reason}") from error
    factory = getattr(module, attribute, None)
    if not callable(factory):
        raise BuildError(
            f"expected a callable {attribute} in {module_name} for {kind} {name}, there is none"
        )
    defined_in = getattr(factory, "__module__", None)
    if defined_in != module_name:
        defined_as = f"{defined_in}:{getattr(factory, '__qualname__', attribute)}"
        _check(name, defined_as, allowed)
    return factory


def load_vector_factory(name: str, allowed: Sequence[str]) -> Callable[..., Any] | None:
    """The factory `package.module:factory_vec` beside a factory, if its module has one.

    It takes `num_envs` and the factory's own arguments, and returns a gymnasium VectorEnv. Call
    this only after `load_factory(name)`.
    """
    module_name, _, attribute = name.partition(":")
    if not hasattr(importlib.import_module(module_name), f"{attribute}_vec"):
        return None
    return load_factory(f"{name}_vec", allowed)


def _check(name: str, candidate: str, allowed: Sequence[str]) -> None:
    patterns = (OWN_PATTERN, *allowed)
    if any(fnmatch.fnmatchcase(candidate, pattern) for pattern in patterns):
        return
    origin = "" if candidate == name else f" (defined as {candidate})"
    raise BuildError(
        f"{name}{origin} is not among the factories that this env server may build "
        f"({', '.join(patterns)}); start it with --allow-env '{candidate}'"
    )
