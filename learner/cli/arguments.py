"""Command lines of the form `CONFIG [options] [overrides]`, made from dataclasses."""

import dataclasses
import re
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from learner.processes.env_servers import plan
from learner.report.json_lines import replace_file
from seedrl import config_io
from seedrl.config import Config, EnvironmentConfig, acts_on_tokens, check
from seedrl.errors import ConfigError
from seedrl.fields import hints_of, with_fields
from seedrl.hints import naming_own_code
from seedrl.programs.command_line import HELP, naming_the_help
from seedrl.programs.flags import Flag, Mark, flag_of, flags_of, name_of, parse_words
from seedrl.programs.help import Group, documented, explained_flags_of, print_help
from seedrl.run_files import CONFIG as CONFIG_FILE
from seedrl.run_files import read_object

Options = TypeVar("Options")

# Short names of fields.
_SHORT = {
    "--envs": "--serving.training-slots",
    "--env-servers": "--launch.env-servers",
    "--groups": "--launch.groups",
    "--bind": "--serving.bind",
    "--token-file": "--serving.token-file",
    "--checkpoint-replay": "--checkpoint.replay",
}
# What a profile may set: of how a machine is used, not of what is learned.
PROFILE = (
    *("launch.env_servers", "launch.envs_per_server", "launch.groups"),
    *("serving.training_slots", "serving.batch_deadline_seconds"),
)
# Of a time or a number on the command line: no wait overflows, no sum is infinite.
_LARGEST = 1_000_000
# The fields that most users set, which `--help` lists; `--help-all` lists all.
_COMMON = (
    *("--envs", "--env-servers", "--groups"),
    *("--seed", "--environment.id", "--environment.arguments"),
    *("--learning.total-steps", "--learning.max-seconds", "--learning.batch-sequences"),
    *("--agent.learning-rate", "--agent.gamma", "--agent.unroll", "--replay.ratio"),
    *("--evaluation.target-return", "--evaluation.episodes"),
    *("--checkpoint.interval-seconds", "--checkpoint.replay", "--logging.wandb"),
)
CONFIG = Flag(
    ("config",),
    str,
    meaning="bundled name (seedrl configs), Python file with config(), or a run's config.json",
    mark=Mark("CONFIG", is_positional=True),
)


@dataclass(frozen=True)
class _Unknown:
    """Fields that only a CONFIG has: the agent's and the replay's."""


_NO_CONFIG = Config(environment=EnvironmentConfig(id=""), agent=_Unknown(), replay=_Unknown())


def require_file(flag: str, path: Path | None, *, force: bool) -> None:
    """Raises ConfigError unless a file can be written there, before a long computation starts.

    Without `force` also if there is one.
    """
    if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
        raise ConfigError(f"{flag}: expected a file in an existing directory, got {path}")
    if path is not None and not force and path.exists():
        raise ConfigError(f"{flag}: {path} is there already; --force replaces it")
    if path is not None:
        try:
            tempfile.TemporaryFile(dir=path.absolute().parent).close()
        except OSError as error:
            reason = error.strerror
            raise ConfigError(f"{flag}: cannot write in {path.parent}: {reason}") from error


def write_output(path: Path, content: str | bytes) -> None:
    """Writes the file of --output, whole or not at all. Raises ConfigError."""
    try:
        replace_file(path, content)
    except OSError as error:
        raise ConfigError(f"--output: cannot write {path}: {error.strerror}") from error


def profile_fields(path: Path, words: Sequence[str] = ()) -> dict[str, Any]:
    """The fields that `seedrl tune` has found, but for those that `words` set. Raises ConfigError.

    The file may be anybody's.
    """
    try:
        fields = read_object(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"--profile: cannot read {path}: {error}") from error
    # Else a file of somebody else's could change what is learned.
    if unknown := sorted(fields.keys() - set(PROFILE)):
        raise ConfigError(
            f"--profile: expected only {', '.join(PROFILE)} in {path}, got {unknown[0]!r:.100}"
        )
    for name, value in fields.items():
        if not isinstance(value, int | float):
            raise ConfigError(
                f"--profile: expected a number as {name}, got {value!r:.60} in {path}"
            )
    # An option wins over the profile, under either of its names.
    given = {_SHORT.get(flag, flag) for flag in map(flag_of, words)}
    return {name: value for name, value in fields.items() if name_of(name) not in given}


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


def require_positive(options: Any, *names: str) -> None:
    """Raises ConfigError for a flag that is not above 0, or huge; None is one that is not given."""
    for name in names:
        value = getattr(options, name)
        if value is not None and not 0 < value <= _LARGEST:
            raise ConfigError(
                f"{name_of(name)}: expected more than 0 and at most {_LARGEST:,}, got {value!s:.60}"
            )


def parse(
    options: type[Options], argv: Sequence[str], *, prog: str, builds: bool = True
) -> tuple[Options, Config]:
    """Loads the CONFIG that `argv` begins with, and applies the flags that follow.

    `--help` prints the command's options and the common fields, `--help-all` all fields; after a
    CONFIG with its values. Both raise SystemExit. Raises ConfigError without a CONFIG, for an
    unknown flag, or a value that does not fit; and if the command `builds` environments, for one
    that a run's directory names and that is not allowed. `options` is a frozen dataclass: the
    flags of the command itself, by name.

    Returns the command's own options, and the configuration with overrides.
    """
    if not argv or argv[0].startswith("-"):
        if set(HELP) & set(argv):
            help_of(options, argv, prog=prog, builds=builds)
        found = repr(argv[0]) if argv else "nothing"
        raise ConfigError(
            f"expected a CONFIG first, got {found}: a name that `seedrl configs` lists, or the "
            f"path of a .py or .json file (see {prog} --help)"
        )
    # A sign of life, for a person only: a log begins later, and a misspelt name is one line.
    is_there = argv[0] in config_io.bundled_names() or Path(argv[0]).exists()
    if is_there and sys.stderr.isatty():
        print(f"{prog}: reading {argv[0]} and importing jax", file=sys.stderr, flush=True)
    # Before CONFIG is loaded, which imports what it names.
    config_io.allow(*_allowed(argv))
    loaded = _loaded(argv[0])
    prog, words = f"{prog} {argv[0]}", argv[1:]
    if set(HELP) & set(words):
        # With the values of this CONFIG.
        help_of(options, words, prog=prog, config=loaded, builds=builds)
    own, fields = flags_of(options), _with_short_names(flags_of_fields(loaded))
    with naming_the_help(prog), naming_own_code("options"):
        _require_present_names(words, own | fields)
        values = parse_words(words, own | fields)
        _require_one_name(values)
        by_path = {
            ".".join(fields[name].path): value for name, value in values.items() if name in fields
        }
        given = {own[name].path[0]: value for name, value in values.items() if name in own}
        config = with_fields(loaded, by_path)
        if "--envs" in values:
            config = _sharing_out(config, loaded.serving.training_slots)
        own_options = options(**given)
    environment = config.environment
    for path, names in (
        ("environment.id", (environment.id,)),
        ("environment.wrappers", environment.wrappers),
    ):
        # What a run's directory names is not the user's, unless the user has typed it.
        if not argv[0].endswith(".json") or path in by_path:
            config_io.import_factories(names)
        elif builds:
            config_io.require_factories(names)
    return own_options, config


def _loaded(name: str) -> Config:
    """The CONFIG; a run's without what its session made for itself, and without an open port."""
    saved = config_io.load(name)
    if Path(name).name != CONFIG_FILE:
        return saved
    # The folder may be anybody's, and only its user opens a port to everybody.
    changes: dict[str, Any] = {"serving.insecure": False}
    # If the user named none, the session had a socket in the private folder of its user, and a
    # token that is gone with it.
    if re.fullmatch(r"seedrl-\d+", Path(saved.serving.bind).parent.name):
        changes["serving.bind"] = ""
    if not Path(saved.serving.token_file).exists():
        changes["serving.token_file"] = ""
    return with_fields(saved, changes)


def _sharing_out(config: Config, slots_before: int) -> Config:
    """What `--envs` changes besides: env servers have equal shares, and a round has all slots."""
    changes, learning = {"launch.envs_per_server": 0}, config.learning
    if learning.schedule == "synchronous" and learning.batch_sequences == slots_before:
        changes["learning.batch_sequences"] = config.serving.training_slots
    return with_fields(config, changes)


def parse_to_measure(
    options: type[Options], argv: Sequence[str], *, prog: str
) -> tuple[Options, Config]:
    """Like `parse`, for a command that runs CONFIG here: also a run's directory, and checked."""
    words = list(argv)
    if words and words[0] and (Path(words[0]) / CONFIG_FILE).is_file():
        words[0] = str(Path(words[0]) / CONFIG_FILE)
    own_options, config = parse(options, words, prog=prog)
    check(config)
    plan(config)  # refuses a run without env servers: there is nothing to measure
    require_time_steps(config)
    return own_options, config


def require_time_steps(config: Config) -> None:
    """Raises ConfigError for a token policy: models of a run count time steps, all alike."""
    if acts_on_tokens(config):
        raise ConfigError(
            "agent: expected an agent that acts on time steps, got a token policy; its metrics "
            "acting_*_share and learning_*_share show which side waits"
        )


def flags_of_fields(value: Any) -> dict[str, Flag]:
    """The flags of all fields in a tree of dataclasses: `--agent.network.core-size`."""
    return {name: flag for group in _sections(value) for name, flag in group.flags.items()}


def _with_short_names(fields: Mapping[str, Flag]) -> dict[str, Flag]:
    return {**fields, **{short: fields[name] for short, name in _SHORT.items()}}


def _sections(value: Any, path: tuple[str, ...] = ()) -> Iterator[Group]:
    """The fields of each dataclass in a tree, those of the root first."""
    # Types and docstrings are the only source of the help.
    hints, (about, meanings) = hints_of(type(value)), documented(type(value))
    flags: dict[str, Flag] = {}
    below: list[Group] = []
    for field in dataclasses.fields(value):
        item, place = getattr(value, field.name), (*path, field.name)
        if dataclasses.is_dataclass(item) and not isinstance(item, type):
            below += _sections(item, place)
        elif field.init:
            kind, meaning = hints.get(field.name, Any), meanings.get(field.name, "")
            kind = type(item) if kind is Any else kind  # of a user's own field without a type
            flags[name_of(".".join(place))] = Flag(place, kind, item, meaning=meaning)
    yield Group(".".join(path) or "run", flags, about.partition("\n\n")[0])
    yield from below


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
        # An agent of the user's may have a field of that name.
        if old in config_io.RENAMED and flag_of(word) not in known:
            raise ConfigError(f"unknown option {word}: {old} is now {config_io.RENAMED[old]}")


def _require_one_name(given: Collection[str]) -> None:
    # Which of the two counts would depend on their order.
    for name, field in _SHORT.items():
        if name in given and field in given:
            raise ConfigError(f"{name} and {field}: expected one of them, got both")


def help_of(
    options: type,
    words: Sequence[str],
    *,
    prog: str,
    config: Config | None = None,
    argument: Flag = CONFIG,
    builds: bool = True,
) -> NoReturn:
    """Prints the help of a command with a CONFIG, or another `argument`. Raises SystemExit.

    Without env servers of its own (`builds`), it has no options for them.
    """
    own = Group("options", explained_flags_of(options))
    sections = list(_sections(config or _NO_CONFIG))
    fields = _with_short_names({name: f for each in sections for name, f in each.flags.items()})
    is_all = "--help-all" in words
    title = "short names of fields" if is_all else "common fields of the configuration"
    names = [name for name in (_SHORT if is_all else _COMMON) if name in fields]
    picked = {name: fields[name] for name in names if builds or fields[name].path[0] != "launch"}
    sections = [Group(title, picked), *(sections if is_all else ())]
    if not is_all:
        own, *sections = (_each(group, _in_short) for group in (own, *sections))
    more = f"All fields of the configuration: {prog} --help-all"
    groups, about = [own], ""
    if config is None:
        about, name = documented(options)[0], argument.mark.metavar
        more = f"All fields of the configuration, with their values: {prog} {name} --help-all"
        groups.insert(0, Group("arguments", {name: argument}))
        # Each configuration has values of its own.
        sections = [
            _each(section, lambda flag: flag._replace(default=None)) for section in sections
        ]
    print_help(prog, about, [*groups, *(each for each in sections if each.flags)], more)


def _each(group: Group, change: Callable[[Flag], Flag]) -> Group:
    return group._replace(flags={name: change(flag) for name, flag in group.flags.items()})


def _in_short(flag: Flag) -> Flag:
    return flag._replace(meaning=flag.meaning.partition(". ")[0])
