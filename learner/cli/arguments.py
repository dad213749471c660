"""Command lines of the form `CONFIG [options] [overrides]`, made from dataclasses."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import tyro

from seedrl import config_io
from seedrl.config import Config
from seedrl.errors import ConfigError
from seedrl.fields import hints_of, with_fields
from seedrl.programs.command_line import (
    Flag,
    flag_of,
    flags_of,
    name_of,
    naming_the_help,
    parse_words,
    print_help,
)

Options = TypeVar("Options")

# Short names of fields.
_SHORT = {
    "--bind": "--serving.bind",
    "--token-file": "--serving.token-file",
    "--checkpoint-replay": "--checkpoint.replay",
}
# Options of commands that set a field.
_SETS = {
    "--envs": "--serving.training-slots",
    "--env-servers": "--launch.env-servers",
    "--envs-per-server": "--launch.envs-per-server",
    "--groups": "--launch.groups",
}
# The fields that most users set, in the order of what they do with them.
_COMMON = (
    *("--seed", "--environment.id", "--learning.total-steps", "--evaluation.target-return"),
    *("--serving.training-slots", "--replay.ratio", "--agent.learning-rate"),
)


def require_file(flag: str, path: Path | None, *, force: bool) -> None:
    """Raises ConfigError unless a file can be written there, before a long computation starts.

    Without `force` also if there is one.
    """
    if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
        raise ConfigError(f"{flag}: expected a file in an existing folder, got {path}")
    if path is not None and not force and path.exists():
        raise ConfigError(f"{flag}: {path} is there already; --force replaces it")


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def require_at_least(options: Any, **least: int) -> None:
    """Raises ConfigError for a flag below its least value; None is a flag that is not given."""
    for name, bound in least.items():
        value = getattr(options, name)
        if value is not None and value < bound:
            raise ConfigError(f"{name_of(name)}: expected at least {bound}, got {value}")


def parse(options: type[Options], argv: Sequence[str], *, prog: str) -> tuple[Options, Config]:
    """Loads the CONFIG that `argv` begins with, and applies the flags that follow.

    `--help` after the CONFIG prints every flag with its type, unit and default, and raises
    SystemExit. Raises ConfigError without a CONFIG, for an unknown flag, or a value that does not
    fit. `options` is a frozen dataclass: the flags of the command itself, by name.

    Returns the command's own options, and the configuration with overrides.
    """
    if not argv or argv[0].startswith("-"):
        _explain(options, argv, prog)
    config_io.allow(*_allowed(argv))
    loaded = config_io.load(argv[0])
    prog, words = f"{prog} {argv[0]}", argv[1:]
    if "-h" in words or "--help" in words:
        _print_help(options, loaded, prog)
    own, fields = flags_of(options), flags_of_fields(loaded)
    fields |= {short: fields[name] for short, name in _SHORT.items()}
    with naming_the_help(prog):
        _require_present_names(words, own | fields)
        values = parse_words(words, own | fields)
        for name, field in _SETS.items():
            if name in values and field in values:
                raise ConfigError(f"{name} and {field}: expected one of them, got both")
        by_path = {
            ".".join(fields[name].path): value for name, value in values.items() if name in fields
        }
        given = {own[name].path[0]: value for name, value in values.items() if name in own}
        config = with_fields(loaded, by_path)
        own_options = options(**given)
    if not argv[0].endswith(".json"):  # what a run's folder names is not the user's
        environment = config.environment
        config_io.import_factories((environment.id, *environment.wrappers))
    return own_options, config


def flags_of_fields(value: Any, path: tuple[str, ...] = ()) -> dict[str, Flag]:
    """The flags of all fields in a tree of dataclasses: `--agent.network.core-size`."""
    hints = hints_of(type(value))
    found: dict[str, Flag] = {}
    for field in dataclasses.fields(value):
        item, place = getattr(value, field.name), (*path, field.name)
        if dataclasses.is_dataclass(item):
            found |= flags_of_fields(item, place)
        elif field.init:
            kind = hints.get(field.name, Any)
            found[name_of(".".join(place))] = Flag(place, type(item) if kind is Any else kind, item)
    return found


def _allowed(argv: Sequence[str]) -> Iterator[str]:
    """The values of --allow, which loading CONFIG needs before its flags are known."""
    is_value = False
    for word in argv:
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            is_value = name == "--allow"
            if is_value and equals:
                yield value
        elif is_value:
            yield word


def _require_present_names(words: Sequence[str], known: Mapping[str, Flag]) -> None:
    """Refuses a field's earlier name by a line with the new one."""
    for word in words:
        old = flag_of(word).removeprefix("--").replace("-", "_")
        if old in config_io.RENAMED and flag_of(word) not in known:
            raise ConfigError(f"unknown option {word}: {old} is now {config_io.RENAMED[old]}")


def _explain(options: type, argv: Sequence[str], prog: str) -> NoReturn:
    names = config_io.bundled_names()
    if argv and argv[0] in ("-h", "--help"):
        print(
            "CONFIG: a bundled name (seedrl configs), a Python file with config(), or a run's "
            f"config.json\nExample: {prog} cartpole_r2d2 --learning.total-steps 1e6\n\n"
            f"Every field of CONFIG is an option, for example {', '.join(_COMMON)}.\n"
            f"Short names: {', '.join(map(' is '.join, _SHORT.items()))}.\n"
            f"All fields: {prog} CONFIG --help\n"
        )
        print_help(options, f"{prog} CONFIG")
    found = repr(argv[0]) if argv else "nothing"
    raise ConfigError(
        f"expected a CONFIG first, got {found}: the path of a .py or .json file or one of "
        f"{', '.join(names)} (see {prog} --help)"
    )


def _print_help(options: type, config: Config, prog: str) -> NoReturn:
    # Without a prefix of their own: all flags are on one page.
    here = tyro.conf.arg(name="")
    parts: Any = [
        ("options", Annotated[options, here]),
        ("config", Annotated[Config, here], dataclasses.field(default=config)),
    ]
    print_help(dataclasses.make_dataclass("CommandLine", parts), prog)
