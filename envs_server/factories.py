"""Which Python callables a learner may name: `package.module:factory`, checked against patterns."""

import fnmatch
import importlib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import gymnasium

from envs_server.failures import BuildError, one_line
from seedrl.hints import missing_extra, own_place
from seedrl.wire.seedrl_pb2 import Environment

# What ships with the env server is always allowed.
OWN_PATTERN = "envs_server.envs.*"

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
# Pong-v0, PongDeterministic-v4, PongNoFrameskip-v4, Pong-ram-v0 and the like.
_OLD_ATARI = re.compile(r"([A-Z][A-Za-z]+?)(?:-ram)?(?:Deterministic|NoFrameskip)?-v[045]")
_LACK = re.compile(r"missing \d+ required .*argument")  # Python's words
# For an environment that gymnasium knows once its package is imported.
_ADVICE = "write a factory that imports its package and returns gymnasium.make(...), and name that"

Factory = Callable[..., Any]


def load_all(
    environment: Environment, allowed: Sequence[str]
) -> tuple[tuple[Factory, ...], Factory | None, Factory | None]:
    """Wrappers, factory and vector factory of an environment; None if the id is gymnasium's.

    Raises BuildError; if something is not allowed, it names everything that is not.
    """
    own = [environment.id] if ":" in environment.id else []
    named = dict.fromkeys((*own, *environment.wrappers))
    _check_allowed(filter(_NAME.fullmatch, named), allowed)
    factory = load_factory(environment.id, allowed) if own else None
    vector_factory = load_vector_factory(environment.id, allowed) if own else None
    wrappers = tuple(load_factory(name, allowed) for name in environment.wrappers)
    return wrappers, factory, vector_factory


def load_factory(name: str, allowed: Sequence[str]) -> Callable[..., Any]:
    """The callable that `name` (`package.module:factory`) stands for.

    `allowed` are shell patterns (`*`, `?`, `[a-z]`) for the whole name; nothing is imported before
    one matches. Unless `name` itself is listed, the name under which the callable was defined must
    match too: a pattern for a module is not for what that module merely imported.

    Raises BuildError.
    """
    if not _NAME.fullmatch(name) or ".py:" in name:
        raise BuildError(f"expected package.module:factory, got {name!r}; {_likely_fault(name)}")
    _check_allowed([name], allowed)  # first: importing a module runs it
    module_name, _, attribute = name.partition(":")
    try:
        # A module may import a name only when it is asked for.
        factory = getattr(importlib.import_module(module_name), attribute, None)
    except (Exception, SystemExit) as error:  # a module may end the process that imports it
        reason = missing_extra(error) or one_line(error)
        if isinstance(error, ModuleNotFoundError) and reason == one_line(error):
            reason += "; install it where the env server runs, or add its directory to PYTHONPATH"
        raise BuildError(f"cannot import {module_name} for {name}: {reason}") from error
    if not callable(factory):
        raise BuildError(f"expected a callable {attribute} in {module_name}, there is none")
    # `module:name` may be a name that the module only imported, for example from `os`.
    defined_in = getattr(factory, "__module__", None)
    if defined_in != module_name and name not in allowed:
        defined_as = f"{defined_in}:{getattr(factory, '__qualname__', attribute)}"
        _check_allowed([name], allowed, defined_as)
    return factory


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


def advice(name: str, error: BaseException) -> str:
    """What may have been meant by an id that is not registered, or by a lack of arguments."""
    # Of the call that builds it, and of no other within.
    if isinstance(error, TypeError) and _LACK.search(str(error)) and not own_place(error):
        return ". hint: pass it by environment.arguments, of check-env by --arguments"
    is_unknown = isinstance(error, gymnasium.error.NameNotFound | gymnasium.error.NamespaceNotFound)
    if not is_unknown:
        return ""
    if game := _OLD_ATARI.fullmatch(name):
        # Names of before gymnasium 1.0: the variants are arguments of ALE/... now.
        return f" An Atari game is named ALE/{game[1]}-v5; or {_ADVICE}, as package.module:factory"
    if "Did you mean" in str(error):
        return ""
    return f" Name an environment of your own as package.module:factory; or {_ADVICE}"


def _likely_fault(name: str) -> str:
    module, _, _ = name.partition(":")
    if "/" in module or module.endswith(".py"):
        meant = module.removesuffix(".py").strip("./").replace("/", ".")
        return f"name the module, not its file: {meant}:..., from the directory that has it"
    if "-" in module:
        return f"a module's name has no dash: did you mean {name.replace('-', '_')}?"
    return f"gymnasium's own module:id is not supported: {_ADVICE}"


# Raises BuildError, with a remedy that can be pasted, for names that no pattern matches: their own,
# or the one under which a callable was defined.
def _check_allowed(names: Iterable[str], allowed: Sequence[str], defined_as: str = "") -> None:
    patterns = (OWN_PATTERN, *allowed)
    refused = [
        name
        for name in names
        # Not `fnmatch.fnmatch`: there case would count only where it counts in file names.
        if not any(fnmatch.fnmatchcase(defined_as or name, pattern) for pattern in patterns)
    ]
    if refused:
        origin = f" (defined as {defined_as})" if defined_as else ""
        verb = "is" if len(refused) == 1 else "are"
        raise BuildError(
            f"{' and '.join(refused)}{origin} {verb} not among the factories that this env server "
            f"may build ({', '.join(patterns)}); start it with --allow-env "
            f"{' '.join(map(repr, refused))}"
        )
