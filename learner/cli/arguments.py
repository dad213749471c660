"""Command lines of the form `CONFIG [options] [overrides]`, made from dataclasses."""

import contextlib
import dataclasses
import difflib
import io
import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

import tyro

from seedrl import config_file
from seedrl.config import Config
from seedrl.errors import ConfigError

Options = TypeVar("Options")


class Arguments(NamedTuple, Generic[Options]):
    """A parsed command line: the command's own options, and the configuration with overrides."""

    options: Options
    config: Config


def parse(options: type[Options], argv: Sequence[str], *, prog: str) -> Arguments[Options]:
    """Loads the CONFIG that `argv` begins with, and applies the flags that follow.

    `--help` after the CONFIG prints every flag with its type, unit and default.

    Args:
      options: a frozen dataclass: the flags of the command itself, by name.
      argv: the command line after `prog`.
      prog: how the command is called, for messages.

    Raises:
      ConfigError: no CONFIG, an unknown flag, or a value that does not fit.
      SystemExit: help was printed.
    """
    if not argv or argv[0].startswith("-"):
        _explain(argv, prog)
    config = config_file.load(argv[0])
    # Both parts without a prefix of their own, so that one parser knows all the flags.
    command_line = dataclasses.make_dataclass(
        "CommandLine",
        [
            ("options", Annotated[options, tyro.conf.arg(name="")]),
            (
                "config",
                Annotated[Config, tyro.conf.arg(name="")],
                dataclasses.field(default=config),
            ),
        ],
        frozen=True,
    )
    parsed: Any = parse_flags(command_line, argv[1:], prog=f"{prog} {argv[0]}")
    return Arguments(parsed.options, parsed.config)


def parse_flags(kind: type[Options], argv: Sequence[str], *, prog: str) -> Options:
    """A dataclass from flags alone. Raises as `parse` does."""
    message = io.StringIO()
    try:
        with contextlib.redirect_stderr(message):
            parsed: tuple[Options, list[str]] = tyro.cli(
                kind, args=argv, prog=prog, return_unknown_args=True
            )
    except SystemExit as end:
        if end.code in (0, None):
            raise
        raise ConfigError(f"{_first_paragraph(message.getvalue())} (see {prog} --help)") from None
    result, unknown = parsed
    if unknown:
        raise ConfigError(f"{_unknown(unknown, _flags(kind))} (see {prog} --help)")
    return result


def _explain(argv: Sequence[str], prog: str) -> None:
    names = ", ".join(config_file.bundled_names())
    if argv and argv[0] in ("-h", "--help"):
        print(f"usage: {prog} CONFIG [options]\n")
        print("CONFIG is the path of a Python file with config(), or the name of a bundled one:")
        print(f"{names}.\nAll options and fields: {prog} CONFIG --help")
        raise SystemExit(0)
    came = repr(argv[0]) if argv else "nothing"
    raise ConfigError(
        f"expected a CONFIG first, got {came}: the path of a .py file or one of {names} "
        f"(see {prog} --help)"
    )


def _first_paragraph(box: str) -> str:
    """The message in the box that tyro draws, without the help texts that follow it."""
    lines = [re.sub(r"^│ | *│$", "", line).strip() for line in box.splitlines()]
    first = re.split(r"[─╭╮╰╯]{3,}", "\n".join(lines[1:]))[0]
    return " ".join(first.split())


def _unknown(unknown: Sequence[str], flags: Sequence[str]) -> str:
    first = next((word for word in unknown if word.startswith("--")), unknown[0])
    name = first.split("=")[0].replace("_", "-")
    # A field whose section was forgotten is as likely as a slip of the finger.
    close = difflib.get_close_matches(name, flags, n=1) or [
        flag for flag in flags if flag.rpartition(".")[2] == name.removeprefix("--")
    ]
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"unknown option {first}{hint}"


def _flags(kind: Any) -> list[str]:
    fields = {field.name: field for field in dataclasses.fields(kind)}
    if set(fields) != {"options", "config"}:
        return [f"--{name.replace('_', '-')}" for name in fields]
    own = _flags(fields["options"].type.__origin__)  # type: ignore[union-attr]
    return [*own, *(f"--{path.replace('_', '-')}" for path in _paths("", fields["config"].default))]


def _paths(prefix: str, value: Any) -> Iterator[str]:
    for field in dataclasses.fields(value):
        item = getattr(value, field.name)
        if dataclasses.is_dataclass(item):
            yield from _paths(f"{prefix}{field.name}.", item)
        else:
            yield f"{prefix}{field.name}"
