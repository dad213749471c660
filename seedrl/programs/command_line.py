"""Command lines made from dataclasses: a mistake is one line with the flag and the value.

argparse reads the values and prints the help; both know only the fields of a dataclass, and their
meanings in its docstring.
"""

import argparse
import contextlib
import dataclasses
import functools
import inspect
import platform
import re
import shutil
import sys
import textwrap
import types
import typing
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

from seedrl.errors import ConfigError, did_you_mean, naming_own_code
from seedrl.wire.contract import MAJOR, MINOR

Options = TypeVar("Options")

# A number that argparse would take for a flag, such as -1e-3.
_SMALL_NEGATIVE = re.compile(r"-\.?\d[\d.]*[eE]")
_NAMES = {int: "INT", float: "FLOAT", str: "TEXT", Path: "PATH"}
_METAVARS = {**_NAMES, int: "N", float: "X"}
HELP = ("-h", "--help", "--help-all")
# Stands for a hyphen while argparse breaks lines: the names of flags are not to be broken.
_HYPHEN = "\N{NON-BREAKING HYPHEN}"


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
    meaning: str = ""
    mark: Mark = Mark()


class Group(NamedTuple):
    """Flags under one title of a help."""

    title: str
    flags: Mapping[str, Flag]
    about: str = ""


def read(kind: type[Options], argv: Sequence[str] | None, *, prog: str) -> Options:
    """The dataclass `kind` from a command line, by default this process's own.

    Raises ConfigError, one line that names the help of `prog`: an unknown flag, a value that does
    not fit, or one that is missing; SystemExit if help was printed.
    """
    words = sys.argv[1:] if argv is None else list(argv)
    known = flags_of(kind)
    if set(HELP) & set(words):
        positional = {name: flag for name, flag in known.items() if flag.mark.is_positional}
        others = {name: flag for name, flag in known.items() if name not in positional}
        groups = [Group("arguments", positional), Group("options", others)]
        print_help(prog, documented(kind)[0], groups)
    with naming_the_help(prog):
        values = parse_words(words, known)
        return kind(**{known[name].path[-1]: value for name, value in values.items()})


def documented(kind: type) -> tuple[str, dict[str, str]]:
    """The description of a dataclass, and the meanings of its fields, from its docstring."""
    about, meanings = "", {}
    # A field of a base is explained there.
    for each in reversed(kind.__mro__):
        text = inspect.cleandoc(each.__dict__.get("__doc__") or "")
        about, _, attributes = text.partition("\nAttributes:\n")
        entries = r"^( +)(\w+)(?: \([^)]*\))?: (.*(?:\n(?:\1 +.*)?)*)"
        for _, name, meaning in re.findall(entries, attributes, re.MULTILINE):
            meanings[name] = " ".join(meaning.split())
    # A dataclass without a docstring has its signature as one.
    return "" if about.startswith(f"{kind.__name__}(") else about.strip(), meanings


def print_help(prog: str, about: str, groups: Sequence[Group], more: str = "") -> typing.NoReturn:
    """Prints help: usage, `about`, the groups and `more`. Raises SystemExit."""
    flags = {name: flag for group in groups for name, flag in group.flags.items()}
    usage = [prog.replace("%", "%%")]
    for name, flag in flags.items():
        if flag.mark.is_positional:
            is_many, metavar = _parts(flag.kind)[1], _metavar(name, flag)
            word = f"{metavar} ..." if is_many else metavar
            usage.append(word if flag.default is MISSING else f"[{word}]")
        elif flag.default is MISSING:
            usage.append(f"{name} {_metavar(name, flag)}")
    parser = _Parser(
        usage=" ".join(
            usage + ["[options]"] * any(not f.mark.is_positional for f in flags.values())
        ),
        description=_filled(about),
        epilog=_filled(more),
        add_help=False,
        formatter_class=functools.partial(
            argparse.RawDescriptionHelpFormatter, max_help_position=30
        ),
    )
    for group in groups:
        section = parser.add_argument_group(group.title, _filled(group.about) or None)
        for name, flag in group.flags.items():
            _add(section, name, flag)
    print(parser.format_help().replace(_HYPHEN, "-"), end="")
    raise SystemExit(0)


def _filled(text: str) -> str:
    # An example stays one line, to be copied.
    width = max(shutil.get_terminal_size().columns - 2, 11)  # as argparse
    return "\n\n".join(
        each
        if each.startswith("Example")
        else textwrap.fill(" ".join(each.split()), width, break_on_hyphens=False)
        for each in text.split("\n\n")
    )


def flags_of(options: type) -> dict[str, Flag]:
    """The flags of a command's own options, a dataclass: `--workdir`."""
    hints = typing.get_type_hints(options, include_extras=True)
    _, meanings = documented(options)
    flags = {}
    for field in dataclasses.fields(options):
        hint = hints[field.name]
        marks = [mark for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, Mark)]
        kind = get_args(hint)[0] if marks else hint
        default = field.default if field.default_factory is MISSING else field.default_factory()
        meaning = meanings.get(field.name, "")
        flags[name_of(field.name)] = Flag((field.name,), kind, default, meaning, *marks)
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
        return [f"--{name}" if value else _opposite(f"--{name}")]
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
    names = {*known, *map(_opposite, known), "--"}
    for word in spelled:  # first: argparse would miss the option that was meant
        if word.startswith("--") and word.partition("=")[0] not in names:
            raise ConfigError(_unknown(word, known))
    given, rest = parser.parse_known_intermixed_args(spelled)
    if rest:
        raise ConfigError(_unknown(rest[0], known))
    return {name: _as_tuples(value) for name, value in vars(given).items()}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> typing.NoReturn:
        raise ConfigError(message.removeprefix("argument "))


def _add(parser: Any, name: str, flag: Flag) -> None:
    # To a parser, or to a group of one.
    help_text = _help_text(name, flag)
    if flag.kind is bool:
        parser.add_argument(name, dest=name, action="store_true", help=help_text)
        hidden = argparse.SUPPRESS
        parser.add_argument(_opposite(name), dest=name, action="store_false", help=hidden)
        return
    kind, is_many, is_optional = _parts(_kind_of_word(flag))
    convert = functools.partial(_converted, kind, is_many, is_optional)
    is_required = flag.default is MISSING
    options: dict[str, Any] = {"type": convert, "nargs": "*" if is_many else None}
    options |= {"metavar": _metavar(name, flag), "help": help_text}
    if not flag.mark.is_positional:
        options["action"] = flag.mark.action
        parser.add_argument(name, dest=name, required=is_required, **options)
        return
    if is_required and is_many:
        options["default"] = ()  # the dataclass itself refuses none if it needs one
    elif not is_many and not is_required:
        options["nargs"] = "?"
    parser.add_argument(dest=name, **options)


def _opposite(name: str) -> str:
    # That of `--checkpoint.replay` is `--checkpoint.no-replay`.
    section, dot, last = name.removeprefix("--").rpartition(".")
    return f"--{section}{dot}no-{last}"


def _kind_of_word(flag: Flag) -> Any:
    return get_args(flag.kind)[0] if flag.mark.action == "append" else flag.kind


def _metavar(name: str, flag: Flag) -> str:
    if flag.mark.metavar or flag.mark.is_positional:
        return flag.mark.metavar or name.removeprefix("--").upper()
    kind = _parts(_kind_of_word(flag))[0]
    if get_origin(kind) is Literal:
        return "|".join(map(str, get_args(kind)))
    return _METAVARS.get(kind, "VALUE")


def _help_text(name: str, flag: Flag) -> str:
    default, note = flag.default, ""
    if default is MISSING:
        note = "" if flag.mark.is_positional else "(required)"
    elif default is True:
        note = f"(default; turned off by {_opposite(name)})"
    elif default is not None and default is not False and default not in ("", ()):
        shown = " ".join(map(str, default)) if isinstance(default, tuple) else default
        note = f"(default: {shown})"
    text = f"{flag.meaning.removesuffix('.')} {note}".strip().replace("%", "%%")
    return text.replace("-", _HYPHEN)


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
    section, _, short = flag_of(word).removeprefix("--").rpartition(".")
    likely = []
    for flag in known:
        path, _, last = flag.removeprefix("--").rpartition(".")
        initials = "".join(part[:1] for part in last.split("-"))
        if path.startswith(section) and (last.startswith(short) or initials == short):
            likely.append(flag)
    return f"unknown option {word}{did_you_mean(flag_of(word), known, sorted(likely, key=len))}"


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
