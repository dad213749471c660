"""Command lines made from dataclasses: a mistake is one line with the flag and the value."""

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import TypeVar

from seedrl.errors import ConfigError
from seedrl.programs.flags import flags_of, parse_words

Options = TypeVar("Options")

HELP = ("-h", "--help", "--help-all")


def read(kind: type[Options], argv: Sequence[str] | None, *, prog: str) -> Options:
    """The dataclass `kind` from a command line, by default this process's own.

    Raises ConfigError, one line that names the help of `prog`: an unknown flag, a value that does
    not fit, or one that is missing; SystemExit if help was printed.
    """
    words = sys.argv[1:] if argv is None else list(argv)
    if set(HELP) & set(words):
        # Here: of the many programs that start at once none prints help.
        from seedrl.programs.help import print_help_of

        print_help_of(kind, prog)
    known = flags_of(kind)
    with naming_the_help(prog):
        values = parse_words(words, known)
        return kind(**{known[name].path[-1]: value for name, value in values.items()})


@contextlib.contextmanager
def naming_the_help(prog: str) -> Iterator[None]:
    """Turns a ValueError into a ConfigError that names the help."""
    try:
        yield
    except ValueError as error:
        raise ConfigError(f"{error} (see {prog} --help)") from None
