"""The flags of a command line by name: one for each option and each field of a configuration."""

import dataclasses
import re
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING
from typing import Annotated, Any, NamedTuple, TypeVar

import tyro

from seedrl.config_io import RENAMED
from seedrl.errors import ConfigError
from seedrl.programs.command_line import flag_of, unknown

Value = TypeVar("Value", bound=Any)


class Flag(NamedTuple):
    """A flag that sets one field.

    Attributes:
      owner: the dataclass that the field belongs to.
      path: names of fields, from the root down to this one.
      default: the value without the flag; `dataclasses.MISSING` if there must be one.
    """

    owner: type
    path: tuple[str, ...]
    default: Any

    def annotation(self, name: str) -> Any:
        """The field's type, for a flag of this name."""
        hint = typing.get_type_hints(self.owner, include_extras=True)[self.path[-1]]
        return Annotated[_quick(hint), tyro.conf.arg(name=name.removeprefix("--"))]

    def described(self, name: str, default: str) -> Any:
        """Like `annotation`, with the field's help text and words in place of its default."""
        hint = typing.get_type_hints(self.owner, include_extras=True)[self.path[-1]]
        return Annotated[
            _quick(hint),
            tyro.conf.arg(
                name=name.removeprefix("--"), help=self._help(), help_behavior_hint=f"({default})"
            ),
        ]

    def _help(self) -> str:
        """What the docstring of the field's class says of it."""
        name = self.path[-1]
        found = re.search(
            rf"^ +(?:\w+, )*{name}(?:, \w+)*: (.*?)(?=^ +[\w, ]+: |^ *$|\Z)",
            self.owner.__doc__ or "",
            re.DOTALL | re.MULTILINE,
        )
        return " ".join(found[1].split()) if found else ""

    def field(self) -> Any:
        """The field of a dataclass that holds the flag's value."""
        if self.default is MISSING:
            return dataclasses.field()
        return dataclasses.field(default_factory=lambda: self.default)


def quick(kind: type[Value]) -> type[Value]:
    """A dataclass like `kind`, of which tyro makes a parser in less time; see `_quick`."""
    hints = typing.get_type_hints(kind, include_extras=True)
    fields = [
        (flag.path[-1], _quick(hints[flag.path[-1]]), flag.field())
        for flag in of_options(kind).values()
    ]
    # tyro reads the help texts where the class says that it stands.
    place = {"__doc__": kind.__doc__, "__module__": kind.__module__}
    return dataclasses.make_dataclass(
        kind.__name__, fields, namespace=place, frozen=True, kw_only=True
    )


def of_options(options: type) -> dict[str, Flag]:
    """The flags of a command's own options, a dataclass: `--workdir`."""
    return {
        _name(field.name): Flag(
            options,
            (field.name,),
            field.default if field.default_factory is MISSING else field.default_factory(),
        )
        for field in dataclasses.fields(options)
    }


def of_fields(value: Any) -> dict[str, Flag]:
    """The flags of all fields in a tree of dataclasses: `--agent.network.core-size`."""
    return {_name(".".join(flag.path)): flag for flag in _fields(value, ())}


def given(words: Sequence[str], known: Mapping[str, Flag]) -> list[str]:
    """The names of the flags in a command line.

    Raises:
      ConfigError: one is not known; the message names the flag that may be meant.
    """
    names = []
    for word in words:
        if word.startswith("--"):
            name = _positive(flag_of(word), known)
            if name not in known:
                old = flag_of(word).removeprefix("--").replace("-", "_")
                if new := RENAMED.get(old):
                    raise ConfigError(f"unknown option {word}: {old} is now {new}")
                raise ConfigError(unknown(word, known))
            names.append(name)
    return names


def with_values(value: Value, values: Mapping[tuple[str, ...], Any]) -> Value:
    """A tree of dataclasses with these values at their paths. Raises what its own checks raise."""
    changed: dict[str, Any] = {}
    below: dict[str, dict[tuple[str, ...], Any]] = {}
    for (name, *rest), new in values.items():
        if rest:
            below.setdefault(name, {})[tuple(rest)] = new
        else:
            changed[name] = new
    for name, deeper in below.items():
        changed[name] = with_values(getattr(value, name), deeper)
    return dataclasses.replace(value, **changed) if changed else value


def _quick(hint: Any) -> Any:
    # For the other form of a union tyro imports typeguard, which takes longer than all of its work;
    # and for a tuple, unless None comes first and is the default.
    if not isinstance(hint, types.UnionType):
        return hint
    kinds = sorted(typing.get_args(hint), key=lambda kind: kind is not types.NoneType)
    return typing.Union[tuple(kinds)]  # noqa: UP007


def _name(path: str) -> str:
    return f"--{path.replace('_', '-')}"


def _positive(name: str, known: Mapping[str, Flag]) -> str:
    """`--checkpoint.replay` for `--checkpoint.no-replay`."""
    section, dot, last = name.removeprefix("--").rpartition(".")
    positive = f"--{section}{dot}{last.removeprefix('no-')}"
    return positive if positive in known and isinstance(known[positive].default, bool) else name


def _fields(value: Any, path: tuple[str, ...]) -> Iterator[Flag]:
    for field in dataclasses.fields(value):
        item = getattr(value, field.name)
        if dataclasses.is_dataclass(item) and not isinstance(item, type):
            yield from _fields(item, (*path, field.name))
        elif field.init:
            yield Flag(type(value), (*path, field.name), item)
