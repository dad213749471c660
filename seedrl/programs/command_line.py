"""Command lines made from dataclasses: a mistake is one line with the flag and the value.

Help is printed by tyro. Values are read here: tyro reports a mistake in a box for people, while a
program's error is one line, and making its parser of a hundred fields takes longer than all else.
"""

import contextlib
import dataclasses
import difflib
import itertools
import platform
import sys
import types
import typing
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

import tyro

from seedrl.errors import ConfigError, own_place
from seedrl.wire.version import MAJOR, MINOR

Options = TypeVar("Options")

_BOOLS = frozenset({"true", "false", "yes", "no", "on", "off"})
_NAMES = {int: "INT", float: "FLOAT", str: "TEXT", Path: "PATH", type(None): "None"}


class Flag(NamedTuple):
    """A flag, or a positional argument, that sets one field.

    Attributes:
      path: names of fields, from the root of a tree of dataclasses down to this one.
      kind: the field's type, without annotations.
      default: the value without the flag; `dataclasses.MISSING` if there must be one.
      is_positional: whether it is given by its place instead of its name.
      appends: whether each time that it is given adds to the tuple.
    """

    path: tuple[str, ...]
    kind: Any
    default: Any = MISSING
    is_positional: bool = False
    appends: bool = False


def read(kind: type[Options], argv: Sequence[str] | None, *, prog: str) -> Options:
    """The dataclass `kind` from a command line, by default this process's own.

    Args:
      prog: how the command is called, for messages.

    Raises:
      ConfigError: an unknown flag, a value that does not fit, or one that is missing: one line.
      SystemExit: help was printed.
    """
    words = sys.argv[1:] if argv is None else list(argv)
    if "-h" in words or "--help" in words:
        print_help(kind, prog)
    known = flags_of(kind)
    with naming_the_help(prog):
        values = parse_words(words, known)
        return kind(**{known[name].path[-1]: value for name, value in values.items()})


def print_help(kind: type, prog: str) -> typing.NoReturn:
    """Prints the help of a dataclass's flags. Raises SystemExit."""
    tyro.cli(kind, args=["--help"], prog=prog)
    raise SystemExit(0)  # tyro has done so


def flags_of(options: type) -> dict[str, Flag]:
    """The flags of a command's own options, a dataclass: `--workdir`."""
    hints = typing.get_type_hints(options, include_extras=True)
    flags = {}
    for field in dataclasses.fields(options):
        hint = hints[field.name]
        marks = getattr(hint, "__metadata__", ())
        default = field.default if field.default_factory is MISSING else field.default_factory()
        flags[name_of(field.name)] = Flag(
            (field.name,),
            get_args(hint)[0] if marks else hint,
            default,
            tyro.conf.Positional in marks,
            tyro.conf.UseAppendAction in marks,
        )
    return flags


def name_of(path: str) -> str:
    """The flag of a field: `--agent.learning-rate` for `agent.learning_rate`."""
    return f"--{path.replace('_', '-')}"


def parse_words(words: Sequence[str], known: Mapping[str, Flag]) -> dict[str, Any]:
    """The values of a command line by the names of their flags; of a flag given twice the last.

    Raises:
      ConfigError: an unknown flag, a value that does not fit, or one that is missing.
    """
    values: dict[str, Any] = {}
    rest: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if not word.startswith("--"):
            rest.append(word)
            continue
        name = _positive(flag_of(word), known)
        if name not in known or known[name].is_positional:
            raise ConfigError(_unknown(word, known))
        values[name] = _value(word, name, known[name], left, values.get(name, ()))
    for name, flag in known.items():
        most = _most_words(flag.kind)
        # Of several there may be none: the dataclass itself says whether it needs one.
        is_optional = most == sys.maxsize and flag.default is MISSING
        if flag.is_positional and (rest or is_optional):
            values[name] = _converted(_shown(name, flag), flag.kind, rest[:most])
            rest = rest[most:]
        elif flag.default is MISSING and name not in values:
            raise ConfigError(f"expected {_shown(name, flag)}, got none")
    if rest:
        raise ConfigError(_unknown(rest[0], known))
    return values


@contextlib.contextmanager
def naming_the_help(prog: str) -> Iterator[None]:
    """Turns a ValueError, and whatever a user's own dataclass raises, into a full ConfigError."""
    try:
        yield
    except ValueError as error:
        raise ConfigError(f"{error} (see {prog} --help)") from None
    except Exception as error:
        # Such as an AssertionError of a user's own dataclass.
        if not (place := own_place(error)):
            raise
        text = f"{type(error).__name__}: {error} ({place}; see {prog} --help)"
        raise ConfigError(text) from error


def flag_of(word: str) -> str:
    """The flag of a word such as `--max_size=3`, as it is written in help."""
    return word.partition("=")[0].replace("_", "-")


def describe() -> str:
    """The versions of seedrl, of its wire and of Python, in one line."""
    # Here: it takes as long to import as all else that reading a command line needs.
    from importlib import metadata

    try:
        version = metadata.version("seedrl")
    except metadata.PackageNotFoundError:
        version = "(not installed)"
    return f"seedrl {version}, wire {MAJOR}.{MINOR}, Python {platform.python_version()}"


def print_version_if_asked(argv: Sequence[str]) -> None:
    """Ends the process after printing the version, if `--version` comes first."""
    if argv and argv[0] == "--version":
        print(describe())
        sys.exit(0)


def _unknown(word: str, known: Collection[str]) -> str:
    """One line about a word that is no flag, with the flag that may be meant."""
    name = flag_of(word)
    # A field whose section was forgotten is as likely as a slip of the finger.
    close = difflib.get_close_matches(name, known, n=1) or [
        flag for flag in known if flag.rpartition(".")[2] == name.removeprefix("--")
    ]
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"unknown option {word}{hint}"


def _positive(name: str, known: Mapping[str, Flag]) -> str:
    """`--checkpoint.replay` for `--checkpoint.no-replay`."""
    section, dot, last = name.removeprefix("--").rpartition(".")
    positive = f"--{section}{dot}{last.removeprefix('no-')}"
    return positive if positive in known and known[positive].kind is bool else name


def _shown(name: str, flag: Flag) -> str:
    return name.removeprefix("--").upper() if flag.is_positional else name


def _value(word: str, name: str, flag: Flag, left: list[str], before: Any) -> Any:
    """The value of the flag in `word`; takes its words from the front of `left`."""
    _, equals, text = word.partition("=")
    if flag.kind is bool:
        got = text if equals else left[0] if left and left[0].lower() in _BOOLS else None
        if got is not None:
            section, dot, last = name.removeprefix("--").rpartition(".")
            raise ConfigError(
                f"{flag_of(word)}: expected no value, got {got!r}; a bool is {name} for true, "
                f"--{section}{dot}no-{last} for false"
            )
        return flag_of(word) == name
    kind = get_args(flag.kind)[0] if flag.appends else flag.kind
    following = list(itertools.takewhile(lambda each: not each.startswith("--"), left))
    taken = [text] if equals else following[: _most_words(kind)]
    if not equals:
        del left[: len(taken)]
    value = _converted(name, kind, taken)
    return (*before, value) if flag.appends else value


def _kinds(hint: Any) -> tuple[Any, ...]:
    """The types of a union, None first; of another type this one."""
    kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    return tuple(sorted(kinds, key=lambda kind: kind is not type(None)))


def _most_words(hint: Any) -> int:
    counts = [1]
    for kind in _kinds(hint):
        if get_origin(kind) in (tuple, list):
            items = get_args(kind)
            is_any_length = get_origin(kind) is list or items[-1] is ...
            counts.append(sys.maxsize if is_any_length else len(items))
    return max(counts)


def _converted(name: str, hint: Any, words: Sequence[str]) -> Any:
    """The value of a type in these words."""
    for kind in _kinds(hint):
        with contextlib.suppress(ValueError):
            return _of_kind(kind, words)
    expected, got = " or ".join(map(_name, _kinds(hint))), " ".join(words)
    if get_origin(_kinds(hint)[-1]) in (tuple, list):
        plain = got.translate(str.maketrans("[](),;", "      ")).split()
        example = f", such as {name} {' '.join(plain)}" if plain != list(words) else ""
        raise ConfigError(f"{name}: expected values with spaces between them{example}, got {got!r}")
    is_none = type(None) in _kinds(hint) and got.lower() == "none"
    told = f"got {got!r}" + "; did you mean None?" * is_none if words else "got nothing"
    raise ConfigError(f"{name}: expected {expected}, {told}")


def _of_kind(kind: Any, words: Sequence[str]) -> Any:
    """Raises ValueError for words that do not fit."""
    origin, items = get_origin(kind), get_args(kind)
    if origin in (tuple, list):
        is_any_length = origin is list or items[-1] is ...
        kinds = [items[0]] * len(words) if is_any_length else items
        return origin(_of_kind(each, [word]) for each, word in zip(kinds, words, strict=True))
    (text,) = words
    if origin is Literal or kind is type(None):
        choices = {str(choice): choice for choice in items or (None,)}
        if text not in choices:
            raise ValueError
        return choices[text]
    if kind is int:
        return _whole(text)
    if kind in (float, str, Path):
        return kind(text)
    raise ValueError  # such as a dict, which is set in the config file


def _whole(text: str) -> int:
    """`1e5` is a whole number too. Raises ValueError if it is none."""
    with contextlib.suppress(ValueError):
        return int(text)
    number = float(text)
    if not number.is_integer():  # nor are inf and nan
        raise ValueError
    return int(number)


def _name(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return " or ".join(map(str, get_args(kind)))
    return _NAMES.get(kind) or f"no flag but a {getattr(kind, '__name__', kind)} in the config file"
