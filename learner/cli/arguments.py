"""Command lines of the form `CONFIG [options] [overrides]`, made from dataclasses."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING
from pathlib import Path
from typing import Annotated, Any, Generic, NamedTuple, NoReturn, TypeVar

import tyro

from learner.cli import flags
from learner.cli.flags import Flag
from seedrl import config_io
from seedrl.config import Config
from seedrl.errors import ConfigError
from seedrl.programs.command_line import naming_the_help, read

Options = TypeVar("Options")

# The fields that most users set, in the order of what they do with them.
_COMMON = (
    "--seed",
    "--environment.id",
    "--environment.arguments",
    "--learning.total-steps",
    "--learning.batch-sequences",
    "--evaluation.target-return",
    "--evaluation.interval-seconds",
    "--serving.training-slots",
    "--serving.evaluation-slots",
    "--replay.capacity-steps",
    "--replay.ratio",
    "--checkpoint.interval-seconds",
    "--agent.learning-rate",
)


class Arguments(NamedTuple, Generic[Options]):
    """A parsed command line: the command's own options, and the configuration with overrides."""

    options: Options
    config: Config


def require_file(flag: str, path: Path | None) -> None:
    """Raises ConfigError unless a file can be written there, before what takes long is begun."""
    if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
        raise ConfigError(f"{flag}: expected a file in an existing folder, got {path}")


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
    config_io.allow(*_allowed(argv))
    config = config_io.load(argv[0])
    prog, words = f"{prog} {argv[0]}", argv[1:]
    if "-h" in words or "--help" in words:
        _print_help(options, config, prog)
    own, fields = flags.of_options(options), flags.of_fields(config)
    values = _values(own | fields, words, prog)
    with naming_the_help(prog):
        return Arguments(
            options(
                **{flag.path[-1]: values[name] for name, flag in own.items() if name in values}
            ),
            flags.with_values(
                config, {flag.path: values[name] for name, flag in fields.items() if name in values}
            ),
        )


def _allowed(argv: Sequence[str]) -> Iterator[str]:
    """The values of --allow, which CONFIG itself needs before the flags are read that it has."""
    is_value = False
    for word in argv:
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            is_value = name == "--allow"
            if is_value and equals:
                yield value
        elif is_value:
            yield word


def parse_flags(kind: type[Options], argv: Sequence[str], *, prog: str) -> Options:
    """A dataclass from flags alone. Raises as `parse` does."""
    parsed = read(flags.quick(kind), argv, prog=prog)
    with naming_the_help(prog):
        return kind(**vars(parsed))


def _explain(options: type, argv: Sequence[str], prog: str) -> NoReturn:
    names = config_io.bundled_names()
    if argv and argv[0] in ("-h", "--help"):
        print(
            "CONFIG: a Python file with config(), the config.json of a run, or the name of one of"
        )
        for name in names:
            print(f"  {name:<24}{config_io.summary(name)}")
        print(f"\nEvery field of a configuration is an option too: {prog} CONFIG --help\n")
        _print_common_help(options, config_io.load(names[0]), f"{prog} CONFIG")
    found = repr(argv[0]) if argv else "nothing"
    raise ConfigError(
        f"expected a CONFIG first, got {found}: the path of a .py or .json file or one of "
        f"{', '.join(names)} (see {prog} --help)"
    )


def _print_common_help(options: type, config: Config, prog: str) -> None:
    """Prints the options of a command, and those fields that most configurations share."""
    known = flags.of_fields(config)
    fields = [
        (name.removeprefix("--"), known[name].described(name, "as in CONFIG"), known[name].field())
        for name in _COMMON
    ]
    common = dataclasses.make_dataclass(
        "Common", [(f"field_{number}", *field[1:]) for number, field in enumerate(fields)]
    )
    parts = [
        ("options", flags.quick(options), dataclasses.field()),
        ("common", common, dataclasses.field()),
    ]
    _help_of(parts, prog)


def _print_help(options: type, config: Config, prog: str) -> None:
    parts = [
        ("options", options, dataclasses.field()),
        ("config", Config, dataclasses.field(default=config)),
    ]
    _help_of(parts, prog)


def _help_of(parts: Sequence[tuple[str, type, Any]], prog: str) -> None:
    # Without a prefix of their own: all flags are on one page.
    unprefixed = [
        (name, Annotated[kind, tyro.conf.arg(name="")], field) for name, kind, field in parts
    ]
    read(dataclasses.make_dataclass("CommandLine", unprefixed), ["--help"], prog=prog)


def _values(known: Mapping[str, Flag], words: Sequence[str], prog: str) -> dict[str, Any]:
    """The values of the flags in a command line, by their names.

    The parser is shown only these flags, and those that must not miss: all of them, with their help
    texts, would take several times as long.
    """
    needed = [name for name, flag in known.items() if flag.default is MISSING]
    with naming_the_help(prog):
        names = list(dict.fromkeys([*flags.given(words, known), *needed]))
    fields = [
        (f"field_{number}", known[name].annotation(name), known[name].field())
        for number, name in enumerate(names)
    ]
    # By keyword: a flag that must not miss may stand behind others.
    given = dataclasses.make_dataclass("Given", fields, kw_only=True)
    values: Any = read(given, words, prog=prog, known=known)
    return dict(zip(names, vars(values).values(), strict=True))
