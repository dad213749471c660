"""A program's help, made from the docstrings of dataclasses, and its version."""

import argparse
import functools
import inspect
import platform
import re
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import MISSING
from typing import NamedTuple, NoReturn

from seedrl.programs.flags import Flag, add, flags_of, metavar_of, opposite_of, parts_of
from seedrl.wire.contract import MAJOR, MINOR

# Stands for a hyphen while argparse breaks lines: the names of flags are not to be broken.
_HYPHEN = "\N{NON-BREAKING HYPHEN}"


class Group(NamedTuple):
    """Flags under one title of a help."""

    title: str
    flags: Mapping[str, Flag]
    about: str = ""


def print_help_of(options: type, prog: str) -> NoReturn:
    """Prints the help of a command whose options are this dataclass. Raises SystemExit."""
    known = explained_flags_of(options)
    positional = {name: flag for name, flag in known.items() if flag.mark.is_positional}
    others = {name: flag for name, flag in known.items() if name not in positional}
    groups = [Group("arguments", positional), Group("options", others)]
    print_help(prog, documented(options)[0], groups)


def explained_flags_of(options: type) -> dict[str, Flag]:
    """The flags of a command's own options, with their meanings from its docstring."""
    meanings = documented(options)[1]
    flags = flags_of(options).items()
    return {name: flag._replace(meaning=meanings.get(flag.path[-1], "")) for name, flag in flags}


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


def print_help(prog: str, about: str, groups: Sequence[Group], more: str = "") -> NoReturn:
    """Prints help: usage, `about`, the groups and `more`. Raises SystemExit."""
    flags = {name: flag for group in groups for name, flag in group.flags.items()}
    usage = [prog.replace("%", "%%")]
    for name, flag in flags.items():
        if flag.mark.is_positional:
            is_many, metavar = parts_of(flag.kind)[1], metavar_of(name, flag)
            word = f"{metavar} ..." if is_many else metavar
            usage.append(word if flag.default is MISSING else f"[{word}]")
        elif flag.default is MISSING:
            usage.append(f"{name} {metavar_of(name, flag)}")
    parser = argparse.ArgumentParser(
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
            add(section, name, flag, _help_text(name, flag))
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


def _help_text(name: str, flag: Flag) -> str:
    default, note = flag.default, ""
    if default is MISSING:
        note = "" if flag.mark.is_positional else "(required)"
    elif default is True:
        note = f"(default; turned off by {opposite_of(name)})"
    elif default is not None and default is not False and default not in ("", ()):
        shown = " ".join(map(str, default)) if isinstance(default, tuple) else default
        note = f"(default: {shown})"
    text = f"{flag.meaning.removesuffix('.')} {note}".strip().replace("%", "%%")
    return text.replace("-", _HYPHEN)


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
