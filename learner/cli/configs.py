"""`seedrl configs [NAME]`: the bundled configurations, and what each one says of itself."""

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import tyro

from learner.cli.arguments import table
from seedrl import config_io
from seedrl.errors import ConfigError
from seedrl.exit_codes import ExitCode
from seedrl.programs.command_line import read

PROG = "seedrl configs"


@dataclass(frozen=True, kw_only=True)
class ConfigsOptions:
    """List the bundled configurations, or describe one: agent, environment, results, command.

    Attributes:
      name: one of the listed names; by default all are listed.
    """

    name: Annotated[str | None, tyro.conf.Positional] = None


def run(argv: Sequence[str]) -> int:
    """Prints a line for each configuration, or the docstring of one; nothing of them is run."""
    options = read(ConfigsOptions, argv, prog=PROG)
    names = config_io.bundled_names()
    if options.name is None:
        print("\n".join(table([(name, config_io.summary(name)) for name in names])))
        print("\nDescribe one: seedrl configs NAME. Train one: seedrl train NAME")
        return ExitCode.OK
    if options.name not in names:
        raise ConfigError(f"name: expected one of {', '.join(names)}, got {options.name!r:.200}")
    source = config_io.bundled_folder() / f"{options.name}.py"
    print(ast.get_docstring(ast.parse(source.read_text())))
    print(f"\nTrain it:     seedrl train {options.name}")
    print(f"Its fields:   seedrl train {options.name} --help")
    print(f"Its file:     {source}")
    return ExitCode.OK
