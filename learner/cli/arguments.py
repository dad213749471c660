"""Command lines of the form `CONFIG [options] [overrides]`, made from dataclasses."""

import contextlib
import dataclasses
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING
from typing import Annotated, Any, Generic, NamedTuple, NoReturn, TypeVar

import tyro

from learner.cli import flags
from learner.cli.flags import Flag
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
        _explain(options, argv, prog)
    config = config_file.load(argv[0])
    prog, words = f"{prog} {argv[0]}", argv[1:]
    if "-h" in words or "--help" in words:
        _print_help(options, config, prog)
    own, fields = flags.of_options(options), flags.of_fields(config)
    with _naming_the_help(prog):
        values = _values(own | fields, words, prog)
        return Arguments(
            options(
                **{flag.path[-1]: values[name] for name, flag in own.items() if name in values}
            ),
            flags.with_values(
                config, {flag.path: values[name] for name, flag in fields.items() if name in values}
            ),
        )


def parse_flags(kind: type[Options], argv: Sequence[str], *, prog: str) -> Options:
    """A dataclass from flags alone. Raises as `parse` does."""
    with _naming_the_help(prog):
        parsed = _parse(flags.quick(kind), argv, prog, flags.of_options(kind))
        return kind(**vars(parsed))


def _explain(options: type, argv: Sequence[str], prog: str) -> NoReturn:
    names = config_file.bundled_names()
    if argv and argv[0] in ("-h", "--help"):
        print(
            "CONFIG: a Python file with config(), the config.json of a run, or the name of one of"
        )
        for name in names:
            print(f"  {name:<24}{config_file.summary(name)}")
        print(f"\nEvery field of a configuration is an option too: {prog} CONFIG --help\n")
        parse_flags(options, ["--help"], prog=f"{prog} CONFIG")
    found = repr(argv[0]) if argv else "nothing"
    raise ConfigError(
        f"expected a CONFIG first, got {found}: the path of a .py or .json file or one of "
        f"{', '.join(names)} (see {prog} --help)"
    )


def _print_help(options: type, config: Config, prog: str) -> None:
    # Both parts without a prefix of their own: all flags are on one page.
    parts = {"options": (options, MISSING), "config": (Config, config)}
    command_line = dataclasses.make_dataclass(
        "CommandLine",
        [
            (name, Annotated[kind, tyro.conf.arg(name="")], dataclasses.field(default=default))
            for name, (kind, default) in parts.items()
        ],
        frozen=True,
    )
    parse_flags(command_line, ["--help"], prog=prog)


def _values(known: Mapping[str, Flag], words: Sequence[str], prog: str) -> dict[str, Any]:
    """The values of the flags in a command line, by their names.

    The parser is shown only these flags, and those that must not miss: all of them, with their help
    texts, would take several times as long.
    """
    needed = [name for name, flag in known.items() if flag.default is MISSING]
    names = list(dict.fromkeys([*flags.given(words, known), *needed]))
    fields = [
        (f"field_{number}", known[name].annotation(name), known[name].field())
        for number, name in enumerate(names)
    ]
    # By keyword: a flag that must not miss may stand behind others.
    given = dataclasses.make_dataclass("Given", fields, kw_only=True)
    values: Any = _parse(given, words, prog, known)
    return dict(zip(names, vars(values).values(), strict=True))


def _parse(
    kind: type[Options], argv: Sequence[str], prog: str, known: Mapping[str, Flag]
) -> Options:
    message = io.StringIO()
    try:
        with contextlib.redirect_stderr(message):
            parsed: tuple[Options, list[str]] = tyro.cli(
                kind, args=argv, prog=prog, return_unknown_args=True
            )
    except SystemExit as end:
        if end.code in (0, None):
            raise
        raise ConfigError(_first_paragraph(message.getvalue())) from None
    result, unknown = parsed
    if unknown:
        first = next((word for word in unknown if word.startswith("--")), unknown[0])
        raise ConfigError(flags.unknown(first, known))
    return result


@contextlib.contextmanager
def _naming_the_help(prog: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:  # also of a dataclass that checks its fields
        raise ConfigError(f"{error} (see {prog} --help)") from None


def _first_paragraph(box: str) -> str:
    """The message in the box that tyro draws, without the help texts that follow it."""
    lines = [re.sub(r"^│ | *│$", "", line).strip() for line in box.splitlines()]
    first = re.split(r"[─╭╮╰╯]{3,}", "\n".join(lines[1:]))[0]
    return " ".join(first.split())
