"""`seedrl configs [NAME]`: the bundled configurations, and what each one says of itself."""

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from learner.cli.arguments import table
from seedrl import config_io
from seedrl.errors import ConfigError
from seedrl.exit_codes import ExitCode
from seedrl.hints import did_you_mean
from seedrl.programs.command_line import read
from seedrl.programs.flags import Mark

PROG = "seedrl configs"


@dataclass(frozen=True, kw_only=True)
class ConfigsOptions:
    """List the bundled configurations, or describe one: agent, environment, results, command.

    Example: seedrl configs pong_ppo

    Attributes:
      name: one of the listed names; by default all are listed.
    """

    name: Annotated[str | None, Mark("CONFIG", is_positional=True)] = None


def run(argv: Sequence[str]) -> int:
    """Prints a line for each configuration, or the docstring of one; nothing of them is run."""
    options = read(ConfigsOptions, argv, prog=PROG)
    names = config_io.bundled_names()
    if options.name is None:
        print("\n".join(table([(name, config_io.summary(name)) for name in names])))
        print("\nDescribe one: seedrl configs NAME. Train one: seedrl train NAME")
        return ExitCode.OK
    if options.name not in names:
        hint = did_you_mean(options.name, names)
        raise ConfigError(f"unknown config {options.name!r:.200}{hint} (see {PROG})")
    source = config_io.bundled_folder() / f"{options.name}.py"
    print(ast.get_docstring(ast.parse(source.read_text())))  # not imported: that would take seconds
    print(f"\nTrain it:     seedrl train {options.name}")
    print(f"Its fields:   seedrl train {options.name} --help-all")
    print(f"Its file:     {source}")
    return ExitCode.OK
