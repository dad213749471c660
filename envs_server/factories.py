"""Which Python callables a learner may name: `package.module:factory`, checked against patterns."""

import fnmatch
import importlib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from envs_server.errors import ADVICE, BuildError, one_line
from seedrl.programs import extras

# What ships with the env server is always allowed.
OWN_PATTERN = "envs_server.envs.*"

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)


def load_factory(
    name: str, allowed: Sequence[str], kind: Literal["environment", "wrapper"] = "environment"
) -> Callable[..., Any]:
    """The callable that `name` (`package.module:factory`) stands for.

    `allowed` are shell patterns (`*`, `?`, `[a-z]`) for the whole name; nothing is imported before
    one matches. Unless `name` itself is listed, the name under which the callable was defined must
    match too: a pattern for a module is not for what that module merely imported.

    Raises BuildError.
    """
    if not _NAME.fullmatch(name) or _fault(name):
        expected = "package.module:factory for a wrapper"
        if kind == "environment":
            expected = "a registered gymnasium id or package.module:factory"
        fault = _fault(name) or f"gymnasium's own module:id is not supported: {ADVICE}"
        raise BuildError(f"expected {expected}, got {name!r}; {fault}")
    check_allowed([name], allowed)
    module_name, _, attribute = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # a module may end the process that imports it
        reason = extras.describe(error) or one_line(error)
        if isinstance(error, ModuleNotFoundError) and reason == one_line(error):
            reason += "; install it where the env server runs, or add its folder to PYTHONPATH"
        raise BuildError(f"cannot import {module_name} for {kind} {name}: {reason}") from error
    factory = getattr(module, attribute, None)
    if not callable(factory):
        raise BuildError(
            f"expected a callable {attribute} in {module_name} for {kind} {name}, there is none"
        )
    defined_in = getattr(factory, "__module__", None)
    if defined_in != module_name and name not in allowed:
        defined_as = f"{defined_in}:{getattr(factory, '__qualname__', attribute)}"
        if not _is_allowed(defined_as, allowed):
            raise BuildError(_refusal([name], allowed, f" (defined as {defined_as})"))
    return factory


def _fault(name: str) -> str:
    """The likely mistake in a name that is no factory's; "" if there is no likely one."""
    module, _, _ = name.partition(":")
    if "/" in module or module.endswith(".py"):
        meant = module.removesuffix(".py").strip("./").replace("/", ".")
        return f"name the module, not its file: {meant}:..., from the folder that has it"
    if "-" in module:
        return f"a module's name has no dash: did you mean {name.replace('-', '_')}?"
    return ""


def load_vector_factory(name: str, allowed: Sequence[str]) -> Callable[..., Any] | None:
    """The factory `package.module:factory_vec` beside a factory, if its module has one.

    It takes `num_envs` and the factory's own arguments, and returns a gymnasium VectorEnv. Where
    `name` itself is listed, it is allowed as well. Call this only after `load_factory(name)`.
    """
    module_name, _, attribute = name.partition(":")
    if not hasattr(importlib.import_module(module_name), f"{attribute}_vec"):
        return None
    vector_name = f"{name}_vec"
    return load_factory(vector_name, (*allowed, vector_name) if name in allowed else allowed)


def check_allowed(names: Iterable[str], allowed: Sequence[str]) -> None:
    """Refuses, together, those names of factories that no pattern admits.

    What is no such name is left to `load_factory`. Raises BuildError.
    """
    named = filter(_NAME.fullmatch, dict.fromkeys(names))
    if refused := [name for name in named if not _is_allowed(name, allowed)]:
        raise BuildError(_refusal(refused, allowed))


def _is_allowed(name: str, allowed: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in (OWN_PATTERN, *allowed))


def _refusal(names: Sequence[str], allowed: Sequence[str], origin: str = "") -> str:
    verb = "is" if len(names) == 1 else "are"
    advice = " ".join(f"'{name}'" for name in names)
    return (
        f"{' and '.join(names)}{origin} {verb} not among the factories that this env server may "
        f"build ({', '.join((OWN_PATTERN, *allowed))}); start it with --allow-env {advice}"
    )
