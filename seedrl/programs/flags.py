"""Flags made from the fields of dataclasses, and their values from the words of a command line.

argparse reads the values. `seedrl.programs.help` reads the meanings from docstrings.
"""

import argparse
import contextlib
import dataclasses
import functools
import itertools
import math
import re
import types
import typing
from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING
from pathlib import Path
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

from seedrl.errors import ConfigError

# A number that argparse would take for a flag, such as -1e-3.
_SMALL_NEGATIVE = re.compile(r"-\.?\d[\d.]*[eE]")
_NAMES = {int: "INT", float: "FLOAT", str: "TEXT", Path: "PATH"}
_METAVARS = {**_NAMES, int: "N", float: "X"}


class Mark(NamedTuple):
    """How a field is written, if not as `--name VALUE`; an annotation: `Annotated[Path, RUN]`."""

    metavar: str = ""  # by default from the type, and of a positional argument the name
    is_positional: bool = False
    # For tuples: each occurrence adds one value ("append") or any number of them ("extend").
    action: Literal["store", "append", "extend"] = "store"


POSITIONAL = Mark(is_positional=True)
RUN = Mark("RUN", is_positional=True)


class Flag(NamedTuple):
    """A flag, or a positional argument, that sets one field."""

    path: tuple[str, ...]  # names of fields, from the root of a tree of dataclasses to this one
    kind: Any  # the field's type, without annotations
    default: Any = MISSING  # if it is required
    mark: Mark = Mark()
    meaning: str = ""  # for help


def flags_of(options: type) -> dict[str, Flag]:
    """The flags of a command's own options, a dataclass: `--workdir`; without their meanings."""
    hints = typing.get_type_hints(options, include_extras=True)
    flags = {}
    for field in dataclasses.fields(options):
        hint = hints[field.name]
        marks = [mark for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, Mark)]
        kind = get_args(hint)[0] if marks else hint
        default = field.default if field.default_factory is MISSING else field.default_factory()
        flags[name_of(field.name)] = Flag((field.name,), kind, default, next(iter(marks), Mark()))
    return flags


def name_of(path: str) -> str:
    """The flag of a field: `--agent.learning-rate` for `agent.learning_rate`."""
    return f"--{path.replace('_', '-')}"


def flag_of(word: str) -> str:
    """The flag of a word such as `--max_size=3`, as it is written in help."""
    return word.partition("=")[0].replace("_", "-")


def parse_words(words: Sequence[str], known: Mapping[str, Flag]) -> dict[str, Any]:
    """The values of a command line by the names of their flags; of a flag given twice the last.

    Raises ConfigError: an unknown flag, a value that does not fit, or one that is missing.
    """
    parser = _Parser(add_help=False, allow_abbrev=False, argument_default=argparse.SUPPRESS)
    for name, flag in known.items():
        add(parser, name, flag)
    spelled: list[str] = []
    for word in words:
        if word.startswith("--"):
            spelled.append(flag_of(word) + "".join(word.partition("=")[1:]))
        elif _SMALL_NEGATIVE.match(word) and spelled and spelled[-1] in known:
            spelled[-1] += f"={word}"
        else:
            spelled.append(word)
    options = [name for name, flag in known.items() if not flag.mark.is_positional]
    names = {*options, *map(opposite_of, options), "--"}
    for word in spelled:  # first: argparse would miss the option that was meant
        if word.startswith("--") and word.partition("=")[0] not in names:
            raise ConfigError(_unknown(word, options))
    given, rest = parser.parse_known_intermixed_args(spelled)
    if rest:
        before = dict(itertools.pairwise(reversed(spelled))).get(rest[0], "")
        if before in known and known[before].kind is bool:
            raise ConfigError(
                f"{before}: expected no value, got {rest[0]!r}; {opposite_of(before)} turns it off"
            )
        raise ConfigError(_unknown(rest[0], options))
    return {name: _as_tuples(value) for name, value in vars(given).items()}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> typing.NoReturn:
        raise ConfigError(message.removeprefix("argument "))


def add(parser: Any, name: str, flag: Flag, help_text: str = "") -> None:
    """Adds a flag to a parser of argparse, or to a group of one."""
    if flag.kind is bool:
        parser.add_argument(name, dest=name, action="store_true", help=help_text)
        hidden = argparse.SUPPRESS
        parser.add_argument(opposite_of(name), dest=name, action="store_false", help=hidden)
        return
    kind, is_many, is_optional = parts_of(_kind_of_word(flag))
    convert = functools.partial(_converted, kind, is_many, is_optional)
    is_required = flag.default is MISSING
    options: dict[str, Any] = {"type": convert, "nargs": "*" if is_many else None}
    options |= {"metavar": metavar_of(name, flag), "help": help_text}
    if not flag.mark.is_positional:
        options["action"] = flag.mark.action
        parser.add_argument(name, dest=name, required=is_required, **options)
        return
    if is_required and is_many:
        options["default"] = ()  # the dataclass itself refuses none if it needs one
    elif not is_many and not is_required:
        # Not SUPPRESS: Python 3.11.7 converts it as if it were a word of the command line.
        options |= {"nargs": "?", "default": flag.default}
    parser.add_argument(dest=name, **options)


def opposite_of(name: str) -> str:
    """The flag that turns another one off: `--checkpoint.no-replay` of `--checkpoint.replay`."""
    section, dot, last = name.removeprefix("--").rpartition(".")
    return f"--{section}{dot}no-{last}"


def _kind_of_word(flag: Flag) -> Any:
    return get_args(flag.kind)[0] if flag.mark.action == "append" else flag.kind


def metavar_of(name: str, flag: Flag) -> str:
    """The word that stands for a flag's value in help and errors."""
    if flag.mark.metavar or flag.mark.is_positional:
        return flag.mark.metavar or name.removeprefix("--").upper()
    kind = parts_of(_kind_of_word(flag))[0]
    if get_origin(kind) is Literal:
        return "|".join(map(str, get_args(kind)))
    return _METAVARS.get(kind, "VALUE")


def _as_tuples(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    return None if value == [None] else tuple(map(_as_tuples, value))


def _unknown(word: str, known: Collection[str]) -> str:
    from seedrl.hints import did_you_mean

    section, _, short = flag_of(word).removeprefix("--").rpartition(".")
    likely = []
    for flag in known:
        path, _, last = flag.removeprefix("--").rpartition(".")
        initials = "".join(part[:1] for part in last.split("-"))
        if last == short or (
            path.startswith(section) and (last.startswith(short) or initials == short)
        ):
            likely.append(flag)
    return f"unknown option {word}{did_you_mean(flag_of(word), known, sorted(likely, key=len))}"


def parts_of(hint: Any) -> tuple[Any, bool, bool]:
    """The type of one word, whether there may be any number of them, whether None is possible."""
    kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    kind = next((each for each in kinds if each is not type(None)), type(None))
    items = get_args(kind)
    is_many = get_origin(kind) is tuple and items[-1] is ...
    return items[0] if is_many else kind, is_many, type(None) in kinds


def _converted(kind: Any, is_many: bool, is_optional: bool, word: str) -> Any:
    if is_optional and word.lower() == "none":
        return None
    with contextlib.suppress(ValueError):
        return _of_kind(kind, word)
    expected = " or ".join(map(str, get_args(kind))) if get_origin(kind) is Literal else None
    expected = expected or _NAMES.get(kind) or f"a {kind}, which only the config file can hold"
    several = ", several with spaces between them" * is_many
    raise argparse.ArgumentTypeError(
        f"expected {expected}{' or None' * is_optional}{several}, got {word!r}"
    )


def _of_kind(kind: Any, text: str) -> Any:
    # A word that does not fit raises ValueError.
    if get_origin(kind) is Literal:
        choices = [str(choice) for choice in get_args(kind)]
        return get_args(kind)[choices.index(text)]
    if kind is int and not text.lstrip("+-").isdigit():
        number = float(text)  # 1e5 is a whole number too
        if not number.is_integer():  # nor are inf and nan
            raise ValueError
        return int(number)
    # "" would be the current folder: a variable of a shell that is not set.
    if kind not in _NAMES or (kind is Path and not text):
        raise ValueError
    if kind is float and not math.isfinite(float(text)):
        raise ValueError
    return kind(text)
