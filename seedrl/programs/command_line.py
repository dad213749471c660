"""Command lines made from dataclasses by tyro, whose mistakes are one line."""

import ast
import contextlib
import dataclasses
import difflib
import io
import itertools
import re
import sys
from collections.abc import Collection, Iterator, Sequence
from typing import Any, TypeVar

import tyro

from seedrl.errors import ConfigError, own_place
from seedrl.programs.version import describe

Options = TypeVar("Options")

_UNION = re.compile(
    r"no type matching (\S+) could be instantiated from \['(.*?)'\]\. Got errors: .*"
)
_TUPLE = re.compile(r"(?<=Error parsing )(\S+): Could not find valid parse for arguments: (\[.*\])")
_BOOLS = frozenset({"true", "false", "yes", "no", "on", "off"})
_NUMBER = {
    re.compile(r"invalid literal for int\(\) with base 10: ('.*')"): "INT",
    re.compile(r"could not convert string to float: ('.*')"): "FLOAT",
}


def read(
    kind: type[Options],
    argv: Sequence[str] | None,
    *,
    prog: str,
    known: Collection[str] | None = None,
) -> Options:
    """The dataclass `kind` from a command line, by default this process's own.

    Args:
      prog: how the command is called, for messages.
      known: the names of all flags, to guess which one was meant; by default those of `kind`.

    Raises:
      ConfigError: an unknown flag, a value that does not fit, or one that is missing: one line.
      SystemExit: help was printed.
    """
    message = io.StringIO()
    words = sys.argv[1:] if argv is None else list(argv)
    try:
        with contextlib.redirect_stderr(message), naming_the_help(prog):
            parsed: tuple[Options, list[str]] = tyro.cli(
                kind, args=words, prog=prog, return_unknown_args=True
            )
    except SystemExit as end:
        if end.code in (0, None):
            raise
        with naming_the_help(prog):
            raise ConfigError(_message(message.getvalue(), kind)) from None
    result, rest = parsed
    if rest:
        first = next((word for word in rest if word.startswith("--")), rest[0])
        with naming_the_help(prog):
            fault = _valued_bool(first, words)
            raise ConfigError(fault or unknown(first, _flags(kind) if known is None else known))
    return result


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


def unknown(word: str, known: Collection[str]) -> str:
    """One line about a word that is no flag, with the flag that may be meant."""
    name = flag_of(word)
    # A field whose section was forgotten is as likely as a slip of the finger.
    close = difflib.get_close_matches(name, known, n=1) or [
        flag for flag in known if flag.rpartition(".")[2] == name.removeprefix("--")
    ]
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"unknown option {word}{hint}"


def _valued_bool(word: str, words: Sequence[str]) -> str:
    """How a bool is written, if `word` is left over since it is the value of one; or ""."""
    # A flag of another kind would have taken the word that follows it.
    pairs = itertools.pairwise(part for item in words for part in item.split("=", 1))
    flag = next((flag_of(flag) for flag, value in pairs if value == word), "")
    if word.lower() not in _BOOLS or not flag.startswith("--"):
        return ""
    section, dot, name = flag.removeprefix("--").rpartition(".")
    name = name.removeprefix("no-")
    return (
        f"{flag}: expected no value, got {word!r}; a bool is --{section}{dot}{name} for true, "
        f"--{section}{dot}no-{name} for false"
    )


def flag_of(word: str) -> str:
    """The flag of a word such as `--max_size=3`, as it is written in help."""
    return word.partition("=")[0].replace("_", "-")


def print_version_if_asked(argv: Sequence[str]) -> None:
    """Ends the process after printing the version, if `--version` comes first."""
    if argv and argv[0] == "--version":
        print(describe())
        sys.exit(0)


def _flags(kind: Any) -> list[str]:
    return [flag_of(f"--{field.name}") for field in dataclasses.fields(kind)]


def _message(box: str, kind: type) -> str:
    """What the box that tyro draws is about, without its title and the help texts that follow.

    A terminal without the characters for a frame gets a title over a rule.
    """
    sections = re.split(r"^(?:[╭╰].*|[│ ]*[─-]{3,}.*)$", box, flags=re.MULTILINE)
    lines = [line.strip("│ ") for line in sections[1].splitlines()]
    text = " ".join(" ".join(lines).split()).removeprefix(f"Error parsing {kind.__name__}: ")
    text = _TUPLE.sub(_expected_several, _UNION.sub(_expected_one, text))
    for pattern, name in _NUMBER.items():
        text = pattern.sub(rf"expected {name}, got \1", text)
    return text


def _expected_one(found: re.Match[str]) -> str:
    """What a field of several types takes; tyro tells how it has failed with each of them."""
    kinds = [kind.strip("{}") for kind in found[1].split("|")]
    hint = "; did you mean None?" if "None" in kinds and found[2].lower() == "none" else ""
    return f"expected {' or '.join(kinds)}, got {found[2]!r}{hint}"


def _expected_several(found: re.Match[str]) -> str:
    """How a tuple is written; the shell hands out its words, and tyro knows no commas."""
    flag, words = found[1], ast.literal_eval(found[2])
    plain = re.findall(r"[^][(),;\s]+", " ".join(words))
    hint = f", such as {flag} {' '.join(plain)}" if plain != words else ""
    return f"{flag}: expected values with spaces between them{hint}, got {' '.join(words)!r}"
