"""Command lines made from dataclasses: a mistake is one line with the flag and the value.

Help is printed by tyro. Values are read by argparse: tyro reports a mistake in a box for people,
while a program's error is one line, and making its parser of a hundred fields takes longer than all
else.
"""

import argparse
import contextlib
import dataclasses
import difflib
import functools
import platform
import re
import sys
import types
import typing
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

import tyro

from seedrl.errors import ConfigError, naming_own_code
from seedrl.wire.contract import MAJOR, MINOR

Options = TypeVar("Options")

# A number that argparse would take for a flag, such as -1e-3.
_SMALL_NEGATIVE = re.compile(r"-\.?\d[\d.]*[eE]")
_NAMES = {int: "INT", float: "FLOAT", str: "TEXT", Path: "PATH"}


class Flag(NamedTuple):
    """A flag, or a positional argument, that sets one field."""

    path: tuple[str, ...]  # names of fields, from the root of a tree of dataclasses to this one
    kind: Any  # the field's type, without annotations
    default: Any = MISSING  # if it is required
    is_positional: bool = False
    appends: bool = False  # each occurrence adds to the tuple


def read(kind: type[Options], argv: Sequence[str] | None, *, prog: str) -> Options:
    """The dataclass `kind` from a command line, by default this process's own.

    Raises ConfigError, one line that names the help of `prog`: an unknown flag, a value that does
    not fit, or one that is missing; SystemExit if help was printed.
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
        kind = get_args(hint)[0] if marks else hint
        default = field.default if field.default_factory is MISSING else field.default_factory()
        is_positional, appends = tyro.conf.Positional in marks, tyro.conf.UseAppendAction in marks
        flags[name_of(field.name)] = Flag((field.name,), kind, default, is_positional, appends)
    return flags


def name_of(path: str) -> str:
    """The flag of a field: `--agent.learning-rate` for `agent.learning_rate`."""
    return f"--{path.replace('_', '-')}"


def flag_of(word: str) -> str:
    """The flag of a word such as `--max_size=3`, as it is written in help."""
    return word.partition("=")[0].replace("_", "-")


def leaves_of(table: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Options of a nested table by their names: `replay.ratio` for {"replay": {"ratio": 4}}."""
    # With or without quotes: `replay.ratio = 4` makes a table in TOML.
    for key, value in table.items():
        name = (f"{path}.{key}" if path else key).replace("_", "-")
        if isinstance(value, Mapping):
            yield from leaves_of(value, name)
        else:
            yield name, value


def words_of(name: str, value: Any) -> list[str]:
    """An option as words of a command line; the inverse of `parse_words`."""
    if isinstance(value, bool):
        section, dot, last = name.rpartition(".")
        return [f"--{name}" if value else f"--{section}{dot}no-{last}"]
    values = value if isinstance(value, list | tuple) else [value]
    # One line, as a run records its command: it is compared with that.
    return [f"--{name}", *(str(each).replace("\n", " ") for each in values)]


def parse_words(words: Sequence[str], known: Mapping[str, Flag]) -> dict[str, Any]:
    """The values of a command line by the names of their flags; of a flag given twice the last.

    Raises ConfigError: an unknown flag, a value that does not fit, or one that is missing.
    """
    parser = _Parser(add_help=False, allow_abbrev=False, argument_default=argparse.SUPPRESS)
    for name, flag in known.items():
        _add(parser, name, flag)
    spelled: list[str] = []
    for word in words:
        if word.startswith("--"):
            spelled.append(flag_of(word) + "".join(word.partition("=")[1:]))
        elif _SMALL_NEGATIVE.match(word) and spelled and spelled[-1] in known:
            spelled[-1] += f"={word}"
        else:
            spelled.append(word)
    given, rest = parser.parse_known_intermixed_args(spelled)
    if rest:
        raise ConfigError(_unknown(rest[0], known))
    return {name: _as_tuples(value) for name, value in vars(given).items()}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> typing.NoReturn:
        raise ConfigError(message.removeprefix("argument "))


def _add(parser: _Parser, name: str, flag: Flag) -> None:
    if flag.kind is bool:
        # Its opposite is `--checkpoint.no-replay`.
        section, dot, last = name.removeprefix("--").rpartition(".")
        parser.add_argument(name, dest=name, action="store_true")
        parser.add_argument(f"--{section}{dot}no-{last}", dest=name, action="store_false")
        return
    kind, is_many, is_optional = _parts(get_args(flag.kind)[0] if flag.appends else flag.kind)
    convert = functools.partial(_converted, kind, is_many, is_optional)
    is_required = flag.default is MISSING
    options: dict[str, Any] = {"dest": name, "type": convert, "nargs": "*" if is_many else None}
    if not flag.is_positional:
        action = "append" if flag.appends else "store"
        parser.add_argument(name, action=action, required=is_required, **options)
        return
    if is_required and is_many:
        options["default"] = ()  # the dataclass itself refuses none if it needs one
    elif not is_many and not is_required:
        options["nargs"] = "?"
    parser.add_argument(metavar=name[2:].upper(), **options)


def _as_tuples(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    return None if value == [None] else tuple(map(_as_tuples, value))


@contextlib.contextmanager
def naming_the_help(prog: str) -> Iterator[None]:
    """Turns a ValueError, and any error of a user's own dataclass, into a full ConfigError."""
    try:
        with naming_own_code("options"):
            yield
    except ValueError as error:
        raise ConfigError(f"{error} (see {prog} --help)") from None


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
    name = flag_of(word)
    # A field whose section was forgotten is as likely as a slip of the finger.
    close = difflib.get_close_matches(name, known, n=1) or [
        flag for flag in known if flag.rpartition(".")[2] == name.removeprefix("--")
    ]
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"unknown option {word}{hint}"


def _parts(hint: Any) -> tuple[Any, bool, bool]:
    # The type of one word, whether there may be any number of them, whether None is possible.
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
    if kind not in _NAMES:
        raise ValueError
    return kind(text)
